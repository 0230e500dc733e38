// Endpoint runs the HTTP server of exporter/ in a job's process. It serves the metrics in the
// process' own segment, and in segments that other processes of the node hand over.
//
// Thread: Start and SayGoodbye under the lock of init. Errors: a warning; it serves nothing then.
#ifndef PLUGIN_RUNTIME_ENDPOINT_H_
#define PLUGIN_RUNTIME_ENDPOINT_H_

#include <memory>
#include <string>

#include "exporter/endpoint/server.h"
#include "plugin/runtime/process.h"

namespace nccl_pulse {

class Endpoint {
 public:
  // Serves metrics; if another process of the node already does, gives that server the segment
  // instead. Does nothing with NCCL_PULSE_LISTEN=off. Returns the metrics' address, or why there is
  // none, for the log. `process` must outlive the server.
  std::string Start(Process* process, abi::DebugLogger logger);

  // Informs the node's server that this process exits.
  void SayGoodbye() {
    if (server_ != nullptr) server_->SayGoodbye();
  }

 private:
  std::unique_ptr<Server> server_;  // null: switched off, or no address to listen on
};

}  // namespace nccl_pulse

#endif  // PLUGIN_RUNTIME_ENDPOINT_H_
