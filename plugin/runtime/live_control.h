// LiveControl applies settings that `pulse set` changes in a running process. It owns the values
// and the socket that receives commands (exporter/control/control_socket.h).
//
// No setting is applied in a way that a callback could wait for:
//   TIMED_LAUNCHES_PER_SECOND   Sampler::SetBudget, which stores two relaxed cells for callbacks
//   NETWORK_WINDOW              NetworkWindow::SetShare, under a lock that no callback takes
//   HANG_SECONDS                stored in the segment, which the node's server reads
//   LOG_LEVEL                   Log::set_level; callbacks do not log
//
// Thread: Open under the lock of init, before the background thread starts; Round on that thread.
// Errors: nothing here throws.
#ifndef PLUGIN_RUNTIME_LIVE_CONTROL_H_
#define PLUGIN_RUNTIME_LIVE_CONTROL_H_

#include "exporter/control/control_socket.h"
#include "exporter/control/live_values.h"
#include "plugin/runtime/process.h"

namespace nccl_pulse {

class LiveControl {
 public:
  explicit LiveControl(Process* process) : process_(*process) {}
  LiveControl(const LiveControl&) = delete;
  LiveControl& operator=(const LiveControl&) = delete;

  // Opens the socket.
  void Open();
  // Handles commands. Returns true while a client is connected, so that the next round comes soon.
  bool Round();
  // Closes the socket. Call once no thread calls Round any more.
  void Close() { socket_.Close(); }

 private:
  void AddSettings();

  Process& process_;
  LiveValues values_;
  ControlSocket socket_;
};

}  // namespace nccl_pulse

#endif  // PLUGIN_RUNTIME_LIVE_CONTROL_H_
