// AskRasOfJob asks NCCL's RAS (its own service for reports) about a job that endpoints report: a
// second source, for people.
//
// Asks the RAS listeners of the job's processes on this host, with or without the plugin. If the
// job has no processes here, asks `choice.address` instead, unless that is on this host and none of
// `endpoints` is. The first report suffices: each listener may know the whole job.
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

// `endpoints`: the endpoints asked about the job; `set`: their snapshots of it. Without
// `choice.address`, asks only listeners of processes without the plugin.
JobRas AskRasOfJob(const std::vector<Address>& endpoints, const SnapshotSet& set,
                   const outside::RasChoice& choice, std::chrono::milliseconds patience,
                   std::chrono::steady_clock::time_point end);

}  // namespace nccl_pulse

#endif  // EXPORTER_CAPTURE_JOB_RAS_H_
