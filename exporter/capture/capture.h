// Collects everything that endpoints and this host know about a job, as files: the work of `pulse
// capture`. What is missing is listed with the reason, among the files.
//
// Endpoints have little processor time for clients, and a job that hangs may be ended soon. So the
// last calls of live ranks come first, hangs before the rest, and busy endpoints are asked until
// they are there. Then follow metrics, and ended communicators as far as endpoints have time for
// them.
//
// Thread: the caller's; blocks. Memory: of the files, and as LookAtJob.
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

namespace nccl_pulse {

struct CaptureOptions {
  JobLookOptions look;
  std::string stack_command;  // "{pid}" in it is replaced; "": none
  std::chrono::milliseconds program_patience{15000};
  // Half of it for what endpoints are asked beyond the verdict, the rest for programs.
  std::chrono::milliseconds time_limit{60000};
  bool is_flight_recorder = false;  // dumps for torchfrtrace alone
  // Is called when endpoints are too busy to answer at once, and are asked again.
  std::function<void()> on_busy;
  std::size_t most_bytes = std::size_t{512} << 20;  // of all files together
};

struct Capture {
  JobLook look;
  Bundle bundle;
  std::size_t sources = 0;           // processes whose calls are there; of dumps: global ranks
  std::size_t missing_live = 0;      // ranks that live, and whose calls are not there
  std::vector<std::string> missing;  // sentences; in the bundle, too
};

Capture CaptureJob(const std::vector<Address>& endpoints, const CaptureOptions& options);

}  // namespace nccl_pulse

#endif  // EXPORTER_CAPTURE_CAPTURE_H_
