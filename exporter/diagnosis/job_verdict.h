// One verdict for a whole job: the roots that the graph of waits (waits/graph.h) has found, with the
// processes of the named ranks, and the stragglers. When a thousand communicators hang, usually one rank
// is the root: the others wait for it, or for somebody who does.
//
// Thread: any, no state. Cost: that of sorting the ranks. It points into the set.
#ifndef EXPORTER_DIAGNOSIS_JOB_VERDICT_H_
#define EXPORTER_DIAGNOSIS_JOB_VERDICT_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "exporter/diagnosis/diagnosis_result.h"
#include "exporter/diagnosis/facts/snapshot_set.h"

namespace nccl_pulse {

// A process, by one of its ranks.
struct JobRank {
  uint64_t comm_id = 0;
  int32_t rank = 0;
  const ProcessSnapshot* process = nullptr;  // null: nobody has seen it
  const CommunicatorSnapshot* communicator = nullptr;
};

struct JobRoot {
  HangVerdict verdict{};
  bool is_usual = false;
  std::vector<JobRank> ranks;    // one for each process that is named
  std::vector<JobRank> perhaps;  // have nothing in flight anywhere, where nobody is named
  std::vector<uint64_t> communicators;
  int64_t since_realtime_ns = 0;
  std::string op;
  std::string missing_call;  // see Hang
  Situation situation{};
  std::string text;  // of the first communicator's verdict
};

struct JobStraggler {
  std::vector<JobRank> ranks;  // several: all of one host that are seen
  bool is_whole_host = false;
  double seconds_per_second = 0;  // that the others wait, at most
  std::string text;
  std::string lateness;  // as in Straggler
};

// Returns what to do first (verdict.h).
std::string FirstStep(const JobRoot& root);
std::string FirstStep(const JobStraggler& straggler);

// A process that waits: where, and for whom.
struct JobWait {
  JobRank rank;
  int64_t since_realtime_ns = 0;
  std::string op;
  HangVerdict verdict{};
  std::vector<int32_t> suspects;  // ranks of its communicator
};

struct JobVerdict {
  std::vector<JobRoot> roots;  // those that are not usual first, then the oldest
  std::vector<JobStraggler> stragglers;
  // What may be wrong, or how the job is made: names nobody. "": none.
  std::string doubt;
  std::vector<JobWait> waits;             // each process once, the longest first
  std::size_t processes = 0;              // that live
  std::size_t hung_communicators = 0;     // of them ...
  std::size_t blocked_communicators = 0;  // ... those whose suspects wait elsewhere
};

JobVerdict JudgeJob(const SnapshotSet& snapshots, const DiagnosisResult& diagnosis,
                    int64_t now_realtime_ns);

// Another look by the same Diagnosis may name a straggler: nobody is, or for whom it waits may be
// found. After so many, a
// second apart, what is known of a job with few calls is as good as it gets.
inline constexpr int kLooksForStragglers = 5;
bool IsAnotherLookWorthwhile(const DiagnosisResult& diagnosis, const JobVerdict& verdict);

}  // namespace nccl_pulse

#endif  // EXPORTER_DIAGNOSIS_JOB_VERDICT_H_
