// CaptureJob collects, for `pulse capture`, all data on a job from endpoints and this host, as
// files. One file lists missing data, with the reasons.
//
// Endpoints have little processor time for clients, and a hung job may end soon. So the last calls
// of live ranks come first, those of hung communicators before the others, and busy endpoints are
// asked again until they answer. Metrics follow, then ended communicators.
//
// Thread: the caller's; blocks. Memory: the files, and what LookAtJob takes (job_look.h).
#ifndef EXPORTER_CAPTURE_CAPTURE_H_
#define EXPORTER_CAPTURE_CAPTURE_H_

#include <chrono>
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "exporter/capture/bundle.h"
#include "exporter/fleet/address.h"
#include "exporter/fleet/job_look.h"
#include "exporter/outside/ras_listeners.h"

namespace nccl_pulse {

struct CaptureOptions {
  JobLookOptions look;                                // how the job is diagnosed
  std::string stack_command;                          // "{pid}" is replaced; "": none
  std::chrono::milliseconds program_patience{15000};  // for one run of `stack_command`
  // For all that comes after the verdict. Requests to endpoints end after half of it.
  std::chrono::milliseconds time_limit{60000};
  bool only_flight_recorder_dumps = false;  // for torchfrtrace
  outside::RasChoice ras;                   // whether and where NCCL's RAS is asked
  // Called when endpoints are too busy to answer at once, and are asked again.
  std::function<void()> on_busy;
  std::size_t most_bytes = std::size_t{512} << 20;  // of all files together
};

struct Capture {
  JobLook look;
  Bundle bundle;
  std::size_t sources = 0;           // processes whose calls were saved; for dumps: global ranks
  std::size_t missing_live = 0;      // live ranks of each communicator whose calls are missing
  std::vector<std::string> missing;  // sentences on missing data; also in the bundle
};

Capture CaptureJob(const std::vector<Address>& endpoints, const CaptureOptions& options);

}  // namespace nccl_pulse

#endif  // EXPORTER_CAPTURE_CAPTURE_H_
