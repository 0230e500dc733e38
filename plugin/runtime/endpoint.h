// Endpoint runs the server of exporter/ in a job's process, with the process' own segment as its
// source.
//
// Thread: Start under the lock of init; SayGoodbye at exit. Errors: a warning; nothing is served
// then.
#ifndef PLUGIN_RUNTIME_ENDPOINT_H_
#define PLUGIN_RUNTIME_ENDPOINT_H_

#include <memory>
#include <string>

#include "exporter/endpoint/server.h"
#include "plugin/runtime/process.h"

namespace nccl_pulse {

class Endpoint {
 public:
  // Serves, or hands the segment over to the node's server, unless NCCL_PULSE_LISTEN=off. Returns
  // the metrics' address, for the log. `process` must outlive the server.
  std::string Start(Process* process, abi::DebugLogger logger);

  void SayGoodbye() {
    if (server_ != nullptr) server_->SayGoodbye();
  }

 private:
  std::unique_ptr<Server> server_;  // null: switched off, or no address to listen on
};

}  // namespace nccl_pulse

#endif  // PLUGIN_RUNTIME_ENDPOINT_H_
