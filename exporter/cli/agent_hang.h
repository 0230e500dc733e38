// Watches for hangs on the agent's own endpoint, for `pulse agent --on-hang`.
//
// Thread: Start and Stop from one thread; the rest on its own, because it blocks. Cost: a
// summary every two seconds, out of the endpoint's budget for clients.
#ifndef EXPORTER_CLI_AGENT_HANG_H_
#define EXPORTER_CLI_AGENT_HANG_H_

#include <chrono>
#include <memory>

#include "exporter/fleet/address.h"
#include "exporter/fleet/http_client.h"
#include "exporter/watch/hang_program.h"

namespace nccl_pulse {

class AgentHangWatch {
 public:
  // Null when the system gives no thread; that is logged.
  static std::unique_ptr<AgentHangWatch> Start(HangProgram::Options options, Address own,
                                               FleetClientOptions client);
  // False when a look or a program did not end in time: its thread goes on as long as the process.
  bool Stop(std::chrono::milliseconds patience);

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace nccl_pulse

#endif  // EXPORTER_CLI_AGENT_HANG_H_
