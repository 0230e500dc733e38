// AskRasOfJob asks NCCL's RAS (its own service for reports) about a job that endpoints report: a
// second source, for people.
//
// With `choice.asks_processes`, asks the listeners of the job's processes on this host (processes
// with the plugin only if there is a `choice.address`). If the job has none here, asks
// `choice.address`, unless that is on this host and no endpoint is: it may serve another job.
// Without `asks_processes`, asks `choice.address` only. The first report suffices: each listener
// may know the whole job.
//
// Thread: any; begins no query of RAS after `end`, and each takes at most `patience`.
#ifndef EXPORTER_CAPTURE_JOB_RAS_H_
#define EXPORTER_CAPTURE_JOB_RAS_H_

#include <chrono>
#include <string>
#include <vector>

#include "exporter/diagnosis/facts/snapshot_set.h"
#include "exporter/fleet/address.h"
#include "exporter/fleet/ras_report.h"
#include "exporter/outside/ras_listeners.h"

namespace nccl_pulse {

struct JobRas {
  RasReport report;
  std::string address;             // of the listener, for people
  std::vector<std::string> notes;  // processes whose RAS isn't asked, and why
};

// `endpoints`: the endpoints asked about the job; `set`: their snapshots of it.
JobRas AskRasOfJob(const std::vector<Address>& endpoints, const SnapshotSet& set,
                   const outside::RasChoice& choice, std::chrono::milliseconds patience,
                   std::chrono::steady_clock::time_point end);

}  // namespace nccl_pulse

#endif  // EXPORTER_CAPTURE_JOB_RAS_H_
