// The plugin as a process sees it. The first init makes it, and it is kept for the life of the
// process: the library is linked -z nodelete and nothing is torn down at exit, so no thread can
// outlive what it uses. The poller stops before the CUDA driver does (poller.h).
//
//   NCCL calls   it comes to          which
//   init         Runtime::Init        makes the runtime once (settings, segment, tracker, threads),
//                                     then adds a communicator
//   a callback   Runtime::tracker()   is one load; null: nothing is measured (no memory, or a
//                                     forked child)
//   finalize     Runtime::Finalize    settles and marks the communicator; its numbers stay readable
//
// The parts: process.h (what one process measures with), poll_work.h and poller.h (the background
// thread), endpoint.h (the server).
//
// Threads: init and finalize of several communicators may run at the same time. They take one lock
// (init_lock.h); callbacks never do. The background threads: "pulse-poll" (poller.h) follows
// launches, settles operations, watches the event masks, keeps memory ready and the clock right;
// "pulse-work" reads counters, where that is asked for; "pulse-http" serves
// (exporter/endpoint/server.h). All block all signals and never call into NCCL or the job.
//
// A process may have several NCCLs, also of different API versions. They share the runtime, which
// was made with the settings that the first could satisfy; the header's nccl_api_version and
// event_mask are those of the first, a communicator's record has its own.
//
// Fork: a child inherits mappings and descriptors and must use neither. The pthread_atfork handler
// unmaps and closes them; callbacks then find no tracker. A later init in the child starts afresh.
//
// Errors: none to NCCL, ever. Less is measured, and one warning says so.
#ifndef PLUGIN_RUNTIME_RUNTIME_H_
#define PLUGIN_RUNTIME_RUNTIME_H_

#include <atomic>

#include "plugin/runtime/init_arguments.h"
#include "plugin/tracker/tracker.h"

namespace nccl_pulse {

class Runtime {
 public:
  // Writes the context ticket (null when there is no room) and the event mask, the same for every
  // communicator of this NCCL (api_version.h).
  static void Init(const InitArguments& arguments, void** context, int* event_mask);
  static void Finalize(void* context);

  // Cost: one load. Acquire: sees the runtime as Init made it.
  static Tracker* tracker() { return tracker_.load(std::memory_order_acquire); }

 private:
  // Hidden: callbacks find it without a table.
  [[gnu::visibility("hidden")]] static std::atomic<Tracker*> tracker_;
};

}  // namespace nccl_pulse

#endif  // PLUGIN_RUNTIME_RUNTIME_H_
