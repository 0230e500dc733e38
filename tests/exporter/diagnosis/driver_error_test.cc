// GPUs of which the driver says that they can do no more.
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/exporter/diagnosis/hang_job.h"

namespace nccl_pulse {
namespace {

constexpr uint32_t kEcc = 214, kIllegalAddress = 700, kLaunchFailed = 719;

void Fail(SimulatedJob* job, int rank, uint32_t error, uint64_t id = kComm) {
  CommunicatorSnapshot& communicator = job->Of(id, rank);
  communicator.has_heartbeat = false;
  communicator.driver_error = error;
  communicator.driver_error_realtime_ns = job->now();
}

using DriverError = RunningJobTest;

TEST_F(DriverError, NamesTheRankAheadOfTheNetwork) {
  job = LaunchingJob({0, 1, 2, 3});
  Fail(&job, 2, kEcc);
  const Hang hang = ExpectHangInTime(&job, HangVerdict::kDriverError, {2});
  EXPECT_THAT(hang.waiting, ElementsAre(0, 1, 3));
  EXPECT_FALSE(hang.is_usual);
  EXPECT_EQ(hang.text,
            "The driver reports that a GPU can do no more work for this process. Rank 2 (pid 102, "
            "GPU 2): CUDA_ERROR_ECC_UNCORRECTABLE (214) since 08:53:20 UTC. Ranks 0, 1 and 3 wait "
            "in AllReduce.");
}

// Between two steps: it makes no further call.
TEST_F(DriverError, BeforeTheCall) {
  Fail(&job, 2, kIllegalAddress);
  LaunchOn(&job, {0, 1, 3}, "AllReduce");
  ExpectHang(&job, HangVerdict::kDriverError, {2});
}

// On another communicator of the same GPU, where the driver was asked first.
TEST_F(DriverError, IsThatOfTheGpu) {
  job.AddCommunicator(1, {0, 1, 2, 3});
  Fail(&job, 2, kIllegalAddress, 1);
  LaunchOn(&job, {0, 1, 3}, "AllReduce");
  ExpectHang(&job, HangVerdict::kDriverError, {2});
  job.Of(1, 2).gpu = "7";  // of another GPU of the process, for which this one may wait
  ExpectHangNow(job, HangVerdict::kBlockedElsewhere, {2});
  ExpectHangNow(job, HangVerdict::kDriverError, {2}, 1);
}

// The error of one GPU reaches others over a link, and later ones are consequences.
TEST_F(DriverError, TheFirstOneAndNotItsVictims) {
  job = LaunchingJob({0, 1, 2, 3});
  Fail(&job, 1, kLaunchFailed);
  job.Advance(20 * kMs);
  Fail(&job, 2, kEcc);
  job.Advance(10 * kSecond);
  Fail(&job, 3, kIllegalAddress);
  const Hang hang = ExpectHang(&job, HangVerdict::kDriverError, {2});
  EXPECT_THAT(hang.text, HasSubstr("Later, or over a link: rank 1 (pid 101, GPU 1): "
                                   "CUDA_ERROR_LAUNCH_FAILED (719) since 08:53:20 UTC and rank 3"));
  // What may come over a link is all that there is.
  job.Of(kComm, 2).driver_error = kLaunchFailed;
  job.Of(kComm, 2).driver_error_realtime_ns = job.now();
  EXPECT_THAT(HangOf(job)->suspects, ElementsAre(1));
}

// A link joins GPUs of one host that work together in nothing, too. Then nobody is named where only
// victims are.
TEST_F(DriverError, VictimsInOtherCommunicators) {
  job.AddCommunicator(1, {0, 1});
  job.AddCommunicator(2, {2, 3});
  Fail(&job, 0, kEcc, 1);
  Fail(&job, 0, kLaunchFailed, 2);
  job.Launch(1, 1, "AllReduce");
  job.Launch(2, 1, "AllReduce");
  job.Advance(kHangAfter);
  EXPECT_THAT(HangOf(job, 1)->suspects, ElementsAre(0));
  const Hang hang = ExpectHangNow(job, HangVerdict::kDriverError, {0}, 2);
  EXPECT_THAT(hang.text, HasSubstr("Most likely over a link: rank 0 (pid 102, GPU 2)"));
}

// Its process has ended since.
TEST_F(DriverError, OfAProcessThatEnded) {
  job = LaunchingJob({0, 1, 2, 3});
  Fail(&job, 2, kIllegalAddress);
  End(&job, 2);
  ExpectHang(&job, HangVerdict::kDriverError, {2});
}

// The end of a process takes away memory that kernels of its peers use.
TEST_F(DriverError, AfterTheEndOfAPeer) {
  job = LaunchingJob({0, 1, 2, 3});
  End(&job, 2);
  job.Advance(20 * kMs);
  Fail(&job, 0, kLaunchFailed);
  Fail(&job, 3, kIllegalAddress);
  ExpectHang(&job, HangVerdict::kProcessGone, {2});
  job.Of(kComm, 3).driver_error = kEcc;
  ExpectHangNow(job, HangVerdict::kDriverError, {3});
}

// Rank 3 had completed all its calls, and others had waited for long.
TEST_F(DriverError, LaterThanTheWait) {
  job = LaunchingJob({0, 1, 2});
  job.Advance(8 * kSecond);
  Fail(&job, 3, kIllegalAddress);
  ExpectHang(&job, HangVerdict::kRankNotCalled, {3});
}

// The state until then is known: the rank's GPU was behind its own work, or inside the
// call like all others.
TEST_F(DriverError, LaterThanTheWaitOfAll) {
  job = LaunchingJob({0, 1, 2, 3});
  SetBegun(&job, kComm, {kBegun, kBegun, kBegun, kNotBegun});
  job.Advance(8 * kSecond);
  Fail(&job, 3, kIllegalAddress);
  ExpectHang(&job, HangVerdict::kRankNotBegun, {3});
  SetBegun(&job, kComm, {kBegun, kBegun, kBegun, kBegun});
  const Hang hang = ExpectHangNow(job, HangVerdict::kDriverError, {3});
  EXPECT_THAT(hang.waiting, ElementsAre(0, 1, 2));
}

TEST_F(DriverError, LaterThanAllWaitForPeers) {
  job = LaunchingJob({0, 1, 2, 3}, "Send");
  job.Advance(8 * kSecond);
  Fail(&job, 3, kIllegalAddress);
  ExpectHang(&job, HangVerdict::kDriverError, {3});
}

// Calls of different sizes end in errors like this.
TEST_F(DriverError, CallsThatDifferComeFirst) {
  job = LaunchingJob({0, 1, 3});
  LaunchOn(&job, {2}, "AllReduce", 5);
  Fail(&job, 0, kIllegalAddress);
  const Hang hang = ExpectHang(&job, HangVerdict::kMismatched, {2});
  EXPECT_THAT(hang.text, Not(HasSubstr("driver")));
}

}  // namespace
}  // namespace nccl_pulse
