#include "exporter/cli/agent_capture.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "exporter/cli/fleet_flags.h"
#include "exporter/fleet/local_process.h"
#include "exporter/node/listener.h"

namespace nccl_pulse {

bool ReadCaptureFlags(const CaptureFlags& flags, const std::string& listen,
                      std::function<std::chrono::milliseconds()> hang_after_now, bool* is_wanted,
                      CaptureWatchOptions* options, std::string* error) {
  options->folder.path = flags.dir;
  *is_wanted = !options->folder.path.empty();
  if (!*is_wanted) return true;
  const auto& [dir, keep, mebibytes, pause, time_limit] = flags;
  if (dir[0] != '/') {
    *error = "--capture-dir is no absolute path";
  } else if (keep < 1 || keep > 1000) {
    *error = "--capture-keep is not between 1 and 1000";
  } else if (mebibytes < 1 || mebibytes > 1 << 20) {
    *error = "--capture-mebibytes is not between 1 and 1048576";
  } else if (pause < absl::Seconds(1) || pause > absl::Hours(24)) {
    *error = "--capture-pause is not between 1s and 24h";
  } else if (time_limit < absl::Seconds(1) || time_limit > absl::Hours(1)) {
    *error = "--time-limit is not between 1s and 1h";
  } else if (absl::StartsWith(listen, "unix:")) {
    *error = "--capture-dir needs --listen=[host]:port: the agent asks itself over TCP";
  }
  if (!error->empty()) return false;
  FleetQuestion question;
  if (!ReadFleetFlags(&question, error)) return false;
  options->capture.look.client = question.client;
  options->hang_after_now = std::move(hang_after_now);
  options->capture.time_limit = absl::ToChronoMilliseconds(time_limit);
  options->limits.captures = static_cast<std::size_t>(keep);
  options->limits.bytes = static_cast<uint64_t>(mebibytes) << 20;
  options->pause = absl::ToChronoMilliseconds(pause);
  return true;
}

bool FindOwnEndpoint(const std::string& listen_address, uint16_t port, bool is_https,
                     const FleetClientOptions& client, Address* own, std::string* error) {
  ListenAddress listen;
  if (!ParseListenAddress(listen_address, &listen, error)) return false;
  if (is_https && client.tls == nullptr) {
    *error =
        "this system has no file of trusted authorities to check the agent's own certificate with; "
        "name one with --ca-cert";
    return false;
  }
  // The name that its certificate has, as a rule; connections go to what is bound alone.
  own->host = "localhost";
  // Of all interfaces a loopback address, which nobody else can have as long as we listen: ":9410"
  // has IPv4 in any case (listener.h), "[::]:9410" has IPv6 alone.
  own->ip = listen.host.empty() || listen.host == "0.0.0.0" ? "127.0.0.1"
            : listen.host == "::"                           ? "::1"
                                                            : listen.host;
  own->port = port;
  own->has_port = true;
  own->is_https = is_https;
  return true;
}

std::unique_ptr<CaptureWatch> StartCaptureWatch(CaptureWatchOptions options, LogFunction log) {
  options.folder.host = NodeName();
  options.folder.port = options.endpoint.port;
  return CaptureWatch::Start(std::move(options), std::move(log));
}

}  // namespace nccl_pulse
