// FindSlowed finds a rank or host that has become slower, if it has no peers to compare with: a
// pipeline stage that fills its nodes. Each rank is compared with its own past.
//
//   the job's step    was 1.0 s, is now 1.3 s, on all ranks, because they wait for each other
//   a waiting rank    spends the additional 0.3 s in calls
//   the slow rank     spends it between its calls
//
//   share = part of a step's additional time that a rank does not spend in calls
//
// A rank, or all ranks of a host, are named if their share is large and all others' shares are
// small. The same must hold relative to the ranks' earlier work: if all work grows in proportion
// (longer sequences), the rank with the most work grows most, and no rank is named.
//
// No rank is named unless the job has become slower and the past of all ranks is known. Only jobs
// with Send and Recv (pipelines) are checked: other ranks are compared by their common calls, and
// their calls don't distinguish an evaluation from training.
//
// If a stage fills its node, a slow host can't be distinguished from a stage with more work; the
// text says so.
//
// Thread: any, no state. Points into views and their snapshots. For the past, see pace_history.h.
#ifndef EXPORTER_DIAGNOSIS_STRAGGLERS_SLOWED_H_
#define EXPORTER_DIAGNOSIS_STRAGGLERS_SLOWED_H_

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "exporter/diagnosis/facts/rank_view.h"
#include "exporter/diagnosis/job_verdict.h"

namespace nccl_pulse {

// The processes and communicators of one job (jobs.h).
struct JobProcesses {
  std::map<const ProcessSnapshot*, JobRank> ranks;  // live processes, with one rank of each
  std::vector<const CommunicatorView*> views;       // with is_mixed, also of ranks of other jobs
  // True if every rank is reported of each communicator that has a live rank.
  bool are_all_seen = true;

  bool Has(const ProcessSnapshot* process) const { return ranks.count(process) != 0; }
};

std::vector<JobProcesses> JobsOf(const std::vector<CommunicatorView>& views);

std::optional<JobStraggler> FindSlowed(const JobProcesses& job);

// DoubtOfBusiestHost finds the host that waits least for the others, in a pipeline whose stages
// fill their hosts. It is slow, or its stages have more work. If no other host has ranks of these
// stages, and the host has not become slower, this can't be decided, so no rank is named.

// Returns a sentence about this host. Returns "" if no host waits clearly less than all others, if
// a rank is not seen, or if the wait of a process is not known.
std::string DoubtOfBusiestHost(const JobProcesses& job);

}  // namespace nccl_pulse

#endif  // EXPORTER_DIAGNOSIS_STRAGGLERS_SLOWED_H_
