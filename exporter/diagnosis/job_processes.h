// Which processes are one job: those that communicators connect.
//
// Thread: any, no state. It points into the set of the views.
#ifndef EXPORTER_DIAGNOSIS_JOB_PROCESSES_H_
#define EXPORTER_DIAGNOSIS_JOB_PROCESSES_H_

#include <map>
#include <vector>

#include "exporter/diagnosis/job_verdict.h"
#include "exporter/diagnosis/rank_view.h"

namespace nccl_pulse {

struct JobProcesses {
  std::map<const ProcessSnapshot*, JobRank> ranks;  // live ones, by one rank of each
  std::vector<const CommunicatorView*> views;       // what is mixed, is of several jobs
  // All ranks are there of all views that have a live one: what is not seen cannot differ.
  bool are_all_seen = true;

  bool Has(const ProcessSnapshot* process) const { return ranks.count(process) != 0; }
};

std::vector<JobProcesses> JobsOf(const std::vector<CommunicatorView>& views);

}  // namespace nccl_pulse

#endif  // EXPORTER_DIAGNOSIS_JOB_PROCESSES_H_
