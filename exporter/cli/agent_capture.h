// The flags of `pulse agent` for captures that it takes by itself.
//
// Thread: main thread.
#ifndef EXPORTER_CLI_AGENT_CAPTURE_H_
#define EXPORTER_CLI_AGENT_CAPTURE_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/time/time.h"
#include "exporter/base/log_level.h"
#include "exporter/fleet/capture_watch.h"

namespace nccl_pulse {

struct CaptureFlags {
  std::string dir;
  int keep = 8;
  int mebibytes = 256;
  absl::Duration pause = absl::Minutes(1);
  absl::Duration time_limit = absl::Seconds(60);
};

// Reads the flags, before anything is served. `is_wanted` is false without --capture-dir. On
// failure returns false and says in `error` what is wrong. `listen`: the agent's own address.
// `hang_after_now`: thread-safe.
bool ReadCaptureFlags(const CaptureFlags& flags, const std::string& listen,
                      std::function<std::chrono::milliseconds()> hang_after_now, bool* is_wanted,
                      CaptureWatchOptions* options, std::string* error);

// The agent's own endpoint, at `listen` and this port, and nobody else's: its password is not for
// who listens at the same port of another of the host's addresses. On failure returns false and
// says in `error` what is wrong.
bool FindOwnEndpoint(const std::string& listen, uint16_t port, bool is_https,
                     const FleetClientOptions& client, Address* own, std::string* error);

// Starts to watch the endpoint of the options. Null where there is no thread for it; that is
// logged.
std::unique_ptr<CaptureWatch> StartCaptureWatch(CaptureWatchOptions options, LogFunction log);

}  // namespace nccl_pulse

#endif  // EXPORTER_CLI_AGENT_CAPTURE_H_
