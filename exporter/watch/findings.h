// What of a look at a job is kept: values that do not point into its snapshots.
//
// Thread: any, no state.
#ifndef EXPORTER_WATCH_FINDINGS_H_
#define EXPORTER_WATCH_FINDINGS_H_

#include <string>
#include <vector>

#include "exporter/fleet/address.h"
#include "exporter/fleet/job_look.h"
#include "exporter/watch/watch_state.h"

namespace nccl_pulse {

// "http://host:9410/path/"
std::string UrlOf(const Address& address);

// Which job a process belongs to, for its labels. The workload is the job id where it has none, as in
// the recording rules.
struct JobName {
  std::string job_id, workload;
  bool operator<(const JobName& other) const {
    return job_id != other.job_id ? job_id < other.job_id : workload < other.workload;
  }
};
JobName NameOfJob(const JobLook& look);

// `look`: at one job. `asked`: the endpoints to which its places refer.
JobFindings FindingsOf(const JobLook& look, const std::vector<Address>& asked);

}  // namespace nccl_pulse

#endif  // EXPORTER_WATCH_FINDINGS_H_
