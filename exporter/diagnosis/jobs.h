// Jobs are processes that share communicators, whatever their job IDs say.
//
// Different communicators with the same ID are distinguished (same_ids.h).
//
// Thread: one at a time. Points into the views (rank_view.h) or the set.
#ifndef EXPORTER_DIAGNOSIS_JOBS_H_
#define EXPORTER_DIAGNOSIS_JOBS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <unordered_map>
#include <utility>
#include <vector>

#include "exporter/base/disjoint_sets.h"
#include "exporter/diagnosis/facts/rank_view.h"

namespace nccl_pulse {

class Jobs {
 public:
  // Does not join the processes of mixed communicators (several with one ID, see same_ids.h).
  explicit Jobs(const std::vector<CommunicatorView>& views);
  // Joins all processes of mixed communicators, so that no job is split. A process without
  // communicators is a job of its own.
  explicit Jobs(const SnapshotSet& set);

  // Returns the job's number. The process must be in the views or the set.
  std::size_t OfProcess(const ProcessSnapshot* process) { return sets_.SetOf(of_.at(process)); }
  // `view`: index in the constructor's `views`.
  std::size_t OfView(std::size_t view) { return sets_.SetOf(view); }
  // Returns the job's number, for a communicator of the set.
  std::size_t OfCommunicator(uint64_t comm_id, uint32_t number) {
    return sets_.SetOf(first_with_.at({comm_id, number}));
  }

 private:
  DisjointSets sets_;
  std::unordered_map<const ProcessSnapshot*, std::size_t> of_;
  std::map<std::pair<uint64_t, uint32_t>, std::size_t>
      first_with_;  // by communicator of a set: its first process
};

// Sets the threshold of each view's job: the shortest threshold of its processes, or
// `otherwise_ns` if none is known. `jobs`, here and below: the jobs of these views.
void SetThresholds(int64_t otherwise_ns, Jobs* jobs, std::vector<CommunicatorView>* views);

// Clears `are_all_expected` in the views of jobs with an endpoint that has rejected processes: the
// ranks that are not reported may be theirs.
void ForgiveRejected(Jobs* jobs, std::vector<CommunicatorView>* views);

}  // namespace nccl_pulse

#endif  // EXPORTER_DIAGNOSIS_JOBS_H_
