// Jobs whose ranks wait, and what is said of them.
#ifndef TESTS_EXPORTER_HANG_JOB_H_
#define TESTS_EXPORTER_HANG_JOB_H_

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "exporter/diagnosis/diagnosis.h"
#include "tests/exporter/simulated_job.h"

namespace nccl_pulse {

inline constexpr uint64_t kComm = 0xc0;
inline constexpr int64_t kHangAfter = 10 * kSecond;
inline const std::vector<int64_t> kTogether(4, 0);

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

inline void LaunchOn(SimulatedJob* job, const std::set<int>& ranks, const std::string& op,
                     int size_class = 4) {
  for (const int rank : ranks) job->Launch(kComm, rank, op, size_class);
}

inline constexpr OldestLaunch kBegun = OldestLaunch::kBegun;
inline constexpr OldestLaunch kNotBegun = OldestLaunch::kNotBegun;

inline void SetBegun(SimulatedJob* job, uint64_t id, const std::vector<OldestLaunch>& ranks) {
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    job->Of(id, static_cast<int>(i)).oldest_launch = ranks[i];
  }
}

}  // namespace nccl_pulse

#endif  // TESTS_EXPORTER_HANG_JOB_H_
