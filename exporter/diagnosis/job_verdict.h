// JobVerdict is the verdict on a whole job: the roots in the graph of waits (waits/graph.h), with
// the processes of the named ranks, and the stragglers. If a thousand communicators hang, usually
// one rank is the root: all others wait for it, directly or through other ranks.
//
// Thread: any, no state. Cost: sorting the ranks. Points into the set.
#ifndef EXPORTER_DIAGNOSIS_JOB_VERDICT_H_
#define EXPORTER_DIAGNOSIS_JOB_VERDICT_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "exporter/diagnosis/diagnosis_result.h"
#include "exporter/diagnosis/facts/rank_view.h"
#include "exporter/diagnosis/facts/snapshot_set.h"

namespace nccl_pulse {

// A process, represented by one of its ranks.
struct JobRank {
  uint64_t comm_id = 0;
  int32_t rank = 0;
  const ProcessSnapshot* process = nullptr;  // null: not seen
  const CommunicatorSnapshot* communicator = nullptr;
};

// A root of a job's waits. The inherited Hang is that of the communicator that has waited longest.
struct JobRoot : Hang {
  std::vector<JobRank> ranks;           // one per named process
  std::vector<JobRank> perhaps;         // if no rank is named: ranks without any work in flight
  std::vector<uint64_t> communicators;  // IDs of communicators whose ranks wait for it
};

struct JobStraggler {
  std::vector<JobRank> ranks;  // several: all ranks of one host that are reported
  bool is_whole_host = false;
  double seconds_per_second = 0;  // upper bound of the time that the others wait
  int64_t window_seconds = 0;     // length of the window; 0: since the job became slower
  std::string text;
  std::string lateness;  // `text` without the ranks' names; "" for a host
};

// Returns the next step (verdict.h).
std::string FirstStep(const JobRoot& root);
std::string FirstStep(const JobStraggler& straggler);

// A waiting process: its communicator, and the ranks for which it waits.
struct JobWait {
  JobRank rank;
  int64_t since_realtime_ns = 0;
  std::string op;
  HangVerdict verdict{};
  std::vector<int32_t> suspects;  // ranks of its communicator
};

struct JobVerdict {
  std::vector<JobRoot> roots;  // unusual waits first, then the oldest
  std::vector<JobStraggler> stragglers;
  // A sentence on a host that is slow, or has more work by the job's design. "": none.
  std::string doubt;
  std::vector<JobWait> waits;             // one per process, longest first
  std::size_t processes = 0;              // live processes
  std::size_t hung_communicators = 0;     // communicators with a hang
  std::size_t blocked_communicators = 0;  // hung communicators whose suspects wait elsewhere
};

JobVerdict JudgeJob(const SnapshotSet& snapshots, const DiagnosisResult& diagnosis,
                    int64_t now_realtime_ns);
// As above. `views`: of these snapshots.
JobVerdict JudgeJob(const SnapshotSet& snapshots, const std::vector<CommunicatorView>& views,
                    const DiagnosisResult& diagnosis);

// True if further polls by the same Diagnosis may name a straggler, or the rank that a late rank
// waits for. After kLooksForStragglers polls, a second apart, more polls hardly help, even for a
// job with few calls.
inline constexpr int kLooksForStragglers = 5;
bool IsAnotherLookWorthwhile(const DiagnosisResult& diagnosis, const JobVerdict& verdict);

}  // namespace nccl_pulse

#endif  // EXPORTER_DIAGNOSIS_JOB_VERDICT_H_
