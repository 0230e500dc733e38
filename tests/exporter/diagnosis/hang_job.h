// Jobs whose ranks wait, and what is said of them.
#ifndef TESTS_EXPORTER_DIAGNOSIS_HANG_JOB_H_
#define TESTS_EXPORTER_DIAGNOSIS_HANG_JOB_H_

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "exporter/diagnosis/diagnosis.h"
#include "exporter/diagnosis/testing/simulated_job.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace nccl_pulse {

// The texts and ranks of a hang are compared by this.
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;

inline constexpr uint64_t kComm = 0xc0;
inline constexpr uint64_t kOther = 0xd0;
inline constexpr int64_t kHangAfter = 10 * kSecond;
inline const std::vector<int64_t> kTogether(4, 0);

inline void End(SimulatedJob* job, int process) {
  job->process(process).end = ProcessEnd::kLost;
  job->process(process).end_realtime_ns = job->now();
}

// What is said of communicator `id`.
inline CommunicatorDiagnosis DiagnosisOf(const SimulatedJob& job, uint64_t id = kComm) {
  for (const CommunicatorDiagnosis& each : Diagnosis().Update(job.Set(), job.now())) {
    if (each.comm_id == id) return each;
  }
  return {};
}

inline std::optional<Hang> HangOf(const SimulatedJob& job, uint64_t id = kComm) {
  return DiagnosisOf(job, id).hang;
}

// Returns what is suspected: a hang, or the test fails.
inline Hang HangNow(const SimulatedJob& job, uint64_t id = kComm) {
  const std::optional<Hang> hang = HangOf(job, id);
  EXPECT_TRUE(hang);
  return hang.value_or(Hang());
}

// A hang of communicator `id` is suspected, with this verdict and these suspects. Returns it.
inline Hang ExpectHangNow(const SimulatedJob& job, HangVerdict verdict,
                          const std::vector<int32_t>& suspects, uint64_t id = kComm,
                          const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  const testing::ScopedTrace trace(file, line, "expected here");
  Hang hang = HangNow(job, id);
  EXPECT_EQ(hang.verdict, verdict);
  EXPECT_EQ(hang.suspects, suspects);
  return hang;
}

// The same when the ranks have waited for kHangAfter.
inline Hang ExpectHang(SimulatedJob* job, HangVerdict verdict, const std::vector<int32_t>& suspects,
                       uint64_t id = kComm, const char* file = __builtin_FILE(),
                       int line = __builtin_LINE()) {
  job->Advance(kHangAfter);
  return ExpectHangNow(*job, verdict, suspects, id, file, line);
}

inline void ExpectNoHang(SimulatedJob* job, int64_t after_ns = kHangAfter,
                         const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  const testing::ScopedTrace trace(file, line, "expected here");
  job->Advance(after_ns);
  EXPECT_EQ(HangOf(*job), std::nullopt);
}

// The same, and not a nanosecond earlier.
inline Hang ExpectHangInTime(SimulatedJob* job, HangVerdict verdict,
                             const std::vector<int32_t>& suspects,
                             const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  SimulatedJob before = *job;
  before.Advance(kHangAfter - 1);
  EXPECT_EQ(HangOf(before), std::nullopt);
  return ExpectHang(job, verdict, suspects, kComm, file, line);
}

// Four ranks after some steps.
inline SimulatedJob RunningJob(int nranks = 0, int nnodes = 1) {
  SimulatedJob job(4);
  job.AddCommunicator(kComm, {0, 1, 2, 3}, nranks, nnodes);
  for (int i = 0; i < 20; ++i) {
    job.Collective(kComm, "AllReduce", kTogether, kMs);
    job.Collective(kComm, "AllGather", kTogether, kMs);
  }
  return job;
}

// Tests that start with, or replace, a running job.
struct RunningJobTest : testing::Test {
  SimulatedJob job = RunningJob();
};

inline void LaunchOn(SimulatedJob* job, const std::set<int>& ranks, const std::string& op,
                     int size_class = 4) {
  for (const int rank : ranks) job->Launch(kComm, rank, op, size_class);
}

// Four ranks after some steps, of which these have launched one more call.
inline SimulatedJob LaunchingJob(const std::set<int>& ranks, const std::string& op = "AllReduce",
                                 int size_class = 4) {
  SimulatedJob job = RunningJob();
  LaunchOn(&job, ranks, op, size_class);
  return job;
}

// Time passes while the process of one rank does not run.
inline void AdvanceWithout(SimulatedJob* job, int rank, int64_t ns = kHangAfter) {
  const int64_t stopped = job->now();
  job->Advance(ns);
  job->process(rank).last_poll_realtime_ns = stopped;
}

inline constexpr OldestLaunch kBegun = OldestLaunch::kBegun;
inline constexpr OldestLaunch kNotBegun = OldestLaunch::kNotBegun;

inline void SetBegun(SimulatedJob* job, uint64_t id, const std::vector<OldestLaunch>& ranks) {
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    job->Of(id, static_cast<int>(i)).oldest_launch = ranks[i];
  }
}

}  // namespace nccl_pulse

#endif  // TESTS_EXPORTER_DIAGNOSIS_HANG_JOB_H_
