// Who of a job has become slower, where nobody can be compared with: a stage of a pipeline that
// fills its nodes. Each rank is compared with itself, before the job became slower.
//
//   the job's step        was 1.0 s, is 1.3 s, on all ranks: they wait for each other
//   a rank that waits     spends the 0.3 s more in calls
//   a rank waited for     does not: what it does between its calls takes 0.3 s longer
//
//   share = of what a step takes longer, the part that is not spent in calls
//
// A rank, or all ranks of a host, are named if their share is large, and that of all others small;
// also of what each did before: if all work grows alike (longer sequences), who always had most to
// do does most more, and nobody is named. Nor is anybody while nothing has become slower.
//
// Nobody is named unless the past of all ranks is known. Only jobs with Send and Recv (pipelines)
// are looked at: ranks of others are compared by their calls in common, and what they call does not
// tell an evaluation from training.
//
// Whether the host is slow, or its stage has more to do since then, cannot be told where a stage
// fills its node, and the text says so.
//
// Thread: any, no state. It points into the set. pace_history.h says what is known of the past.
#ifndef EXPORTER_DIAGNOSIS_STRAGGLERS_SLOWED_H_
#define EXPORTER_DIAGNOSIS_STRAGGLERS_SLOWED_H_

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "exporter/diagnosis/facts/rank_view.h"
#include "exporter/diagnosis/job_verdict.h"

namespace nccl_pulse {

// A job (jobs.h).
struct JobProcesses {
  std::map<const ProcessSnapshot*, JobRank> ranks;  // live ones, by one rank of each
  std::vector<const CommunicatorView*> views;       // what is mixed, is of several jobs
  // All ranks are there of all views that have a live one: what is not seen cannot differ.
  bool are_all_seen = true;

  bool Has(const ProcessSnapshot* process) const { return ranks.count(process) != 0; }
};

std::vector<JobProcesses> JobsOf(const std::vector<CommunicatorView>& views);

std::optional<JobStraggler> FindSlowed(const JobProcesses& job);

// A doubt that is worth saying: of a pipeline whose stages fill their hosts, the host that waits
// least for the others. It is slow, or its stages have more to do; where no other host has ranks of
// these stages, and it is not known to have become slower (slowed.h), nothing tells which. So
// nobody is named. Nothing is said where a rank is not seen, or it is not known how long a process
// waits.

// A sentence; "" where no host waits clearly less than all others.
std::string DoubtOfBusiestHost(const JobProcesses& job);

}  // namespace nccl_pulse

#endif  // EXPORTER_DIAGNOSIS_STRAGGLERS_SLOWED_H_
