// The endpoint of a job's process: the server of exporter/, fed from the process' own segment.
//
// Thread: Start under the lock of init; SayGoodbye at the exit. Errors: a warning; then nothing
// is served.
#ifndef PLUGIN_RUNTIME_ENDPOINT_H_
#define PLUGIN_RUNTIME_ENDPOINT_H_

#include <memory>
#include <string>

#include "exporter/endpoint/server.h"
#include "plugin/runtime/process.h"

namespace nccl_pulse {

class Endpoint {
 public:
  // Serves or hands over, unless NCCL_PULSE_LISTEN=off. Returns, for the log, where the metrics
  // are. `process` must outlive the server.
  std::string Start(Process* process, abi::DebugLogger logger);

  void SayGoodbye() {
    if (server_ != nullptr) server_->SayGoodbye();
  }

 private:
  std::unique_ptr<Server> server_;  // null: switched off, or no address to listen on
};

}  // namespace nccl_pulse

#endif  // PLUGIN_RUNTIME_ENDPOINT_H_
