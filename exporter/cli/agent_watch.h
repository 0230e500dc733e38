// AgentWatch watches the agent's own endpoint for `pulse agent --on-hang` and `--capture-dir`.
//
// Thread: main thread; the watch blocks, so it runs in its own thread. Cost: a summary every two
// seconds, and further requests within the endpoint's budget for clients.
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
  std::string dir;
  int keep = 8;
  int mebibytes = 256;
  absl::Duration pause = absl::Minutes(1);
  absl::Duration time_limit = absl::Seconds(60);
};

// Reads the flags before anything is served. The folder's path is "" without --capture-dir.
// `listen`: the agent's own address. On failure returns false and sets `error`.
bool ReadCaptureFlags(const CaptureFlags& flags, const std::string& listen,
                      AutomaticCaptures::Options* options, std::string* error);

// Finds the agent's own endpoint, at `listen` and this port. Its password must not reach a process
// that listens on the same port of another address of the host. On failure returns false and sets
// `error`.
bool FindOwnEndpoint(const std::string& listen, uint16_t port, bool is_https,
                     const FleetClientOptions& client, Address* own, std::string* error);

class AgentWatch {
 public:
  // Starts the program and the captures whose path is set. Returns null if neither is set, or,
  // after logging it, if no thread can be started.
  static std::unique_ptr<AgentWatch> Start(HangProgram::Options on_hang,
                                           AutomaticCaptures::Options captures, Address own,
                                           FleetClientOptions client, const LogFunction& log);
  // False if a poll, capture or program did not end in time; its thread then runs until the process
  // ends.
  bool Stop(std::chrono::milliseconds patience);

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace nccl_pulse

#endif  // EXPORTER_CLI_AGENT_WATCH_H_
