// AgentWatch watches the agent's own endpoint for hangs and stragglers, for `pulse agent --on-hang`
// and `--capture-dir`.
//
// Thread: main thread. Polling blocks, so it runs on a thread of its own. Cost: a request for
// /api/v1/summary every two seconds, and further requests within the endpoint's budget for clients.
#ifndef EXPORTER_CLI_AGENT_WATCH_H_
#define EXPORTER_CLI_AGENT_WATCH_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/time/time.h"
#include "exporter/fleet/address.h"
#include "exporter/fleet/http_client.h"
#include "exporter/watch/automatic_captures.h"
#include "exporter/watch/hang_program.h"

namespace nccl_pulse {

struct CaptureFlags {
  std::string dir;                                // folder for captures; "": takes none
  int keep = 8;                                   // most captures of this agent in the folder
  int mebibytes = 256;                            // most MiB of these captures together
  absl::Duration pause = absl::Minutes(1);        // least time between two captures
  absl::Duration time_limit = absl::Seconds(60);  // of one capture, after its verdict
};

// Checks the flags and copies them to `options`, whose folder is "" without --capture-dir.
// `listen`: value of --listen. On failure returns false and sets `error`.
bool ReadCaptureFlags(const CaptureFlags& flags, const std::string& listen,
                      AutomaticCaptures::Options* options, std::string* error);

// Sets `own` to the address at which the agent reaches itself: the address in `listen`, or loopback
// if that is all interfaces. So the password cannot reach another process that listens on the same
// port of another address. On failure returns false and sets `error`.
bool FindOwnEndpoint(const std::string& listen, uint16_t port, bool is_https,
                     const FleetClientOptions& client, Address* own, std::string* error);

class AgentWatch {
 public:
  // Starts polling. `on_hang` is used if its program is set, `captures` if its folder is set.
  // Returns null if neither is set, or if no thread can be started, which it logs.
  static std::unique_ptr<AgentWatch> Start(HangProgram::Options on_hang,
                                           AutomaticCaptures::Options captures, Address own,
                                           FleetClientOptions client, const LogFunction& log);
  // Returns false if a poll, capture or program did not end within `patience`. Its thread then runs
  // until the process ends.
  bool Stop(std::chrono::milliseconds patience);

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace nccl_pulse

#endif  // EXPORTER_CLI_AGENT_WATCH_H_
