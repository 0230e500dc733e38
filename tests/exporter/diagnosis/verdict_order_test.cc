// Several things are wrong with one communicator: which of them the verdict names.
//
//   process gone > not called, where that is proven > process stopped
//
// A process that is gone never comes back, and nobody can go on without it. Of a rank that runs, is
// idle and has called less it is certain that the others wait for it. What a process has called
// whose background thread stands may not be counted yet, so it is said beside that, and named only
// where nothing else is certain.
#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/exporter/diagnosis/hang_job.h"

namespace nccl_pulse {
namespace {

using testing::Contains;

// There are five ranks, and those in `calling` wait in one more AllReduce. `gone` and `stopped` are so from the
// moment of that call on.
Hang ExpectHangOf(const std::set<int>& calling, const std::set<int>& gone,
                  const std::set<int>& stopped, HangVerdict verdict,
                  const std::vector<int32_t>& suspects) {
  SimulatedJob job(5);
  job.AddCommunicator(kComm, {0, 1, 2, 3, 4});
  for (int i = 0; i < 20; ++i) {
    job.Collective(kComm, "AllReduce", std::vector<int64_t>(5, 0), kMs);
  }
  LaunchOn(&job, calling, "AllReduce");
  const int64_t called_ns = job.now();
  for (const int rank : gone) job.process(rank).end = ProcessEnd::kLost;
  job.Advance(kHangAfter);
  for (const int rank : stopped) job.process(rank).last_poll_realtime_ns = called_ns;
  return ExpectHangNow(job, verdict, suspects);
}

TEST(VerdictOrder, AGoneRankFirst) {
  constexpr HangVerdict kGone = HangVerdict::kProcessGone;
  const Hang hang = ExpectHangOf({0, 1, 2}, /*gone=*/{4}, /*stopped=*/{3}, kGone, {4});
  EXPECT_THAT(hang.waiting, Not(Contains(4)));
  ExpectHangOf({1, 2, 3}, /*gone=*/{0}, /*stopped=*/{4}, kGone, {0});     // in the other order
  ExpectHangOf({0, 1, 2, 3}, /*gone=*/{4}, /*stopped=*/{3}, kGone, {4});  // 3 has called
  ExpectHangOf({0, 1, 2}, /*gone=*/{4}, /*stopped=*/{}, kGone, {4});      // 3 has not
}

// It may wait for the stopped one, outside of NCCL.
TEST(VerdictOrder, AStoppedRankBeforeOneThatHasNotCalled) {
  const Hang hang =
      ExpectHangOf({0, 1, 2}, /*gone=*/{}, /*stopped=*/{4}, HangVerdict::kProcessStopped, {4});
  EXPECT_THAT(hang.text, HasSubstr("Rank 3 (pid 103, GPU 3) has not called AllReduce"));
}

TEST(VerdictOrder, AStoppedRankWhereNoOtherIsProven) {
  ExpectHangOf({0, 1, 2, 3}, /*gone=*/{}, /*stopped=*/{4}, HangVerdict::kProcessStopped, {4});
}

}  // namespace
}  // namespace nccl_pulse
