// Runtime is the plugin's per-process state. The first init creates it, and it lives as long as the
// process: the library is linked with -z nodelete, and exit tears nothing down. So no thread
// outlives the objects that it uses. The poller stops before the CUDA driver does (poller.h).
//
//   NCCL calls  function            effect
//   init        Runtime::Init       creates the runtime once (settings, segment, tracker, threads),
//                                   then adds a communicator
//   a callback  Runtime::tracker()  one load; null: nothing is measured (no memory, or a forked
//                                   child)
//   finalize    Runtime::Finalize   closes the communicator's open operations and marks it as
//                                   finalized; its numbers stay readable
//
// The parts: process.h (settings, clock, segment and tracker), poll_work.h and poller.h (the
// background thread), endpoint.h (the server).
//
// Threads: init and finalize of several communicators may run concurrently. They take a lock
// (init_lock.h); callbacks never do. Background threads: "pulse-poll" and "pulse-work"
// (poll_work.h), and "pulse-http", which serves (exporter/endpoint/server.h). They block all
// signals, and never call into NCCL or the job.
//
// A process may have several NCCLs of different API versions. They share the runtime, whose
// settings depend on the first NCCL. The segment's header has the first NCCL's nccl_api_version and
// event_mask; each communicator's record has its own.
//
// Fork: a child inherits mappings and descriptors but must not use them. The pthread_atfork handler
// unmaps and closes them, and callbacks then find no tracker. A later init in the child starts
// anew.
//
// Errors: NCCL never gets one. The plugin then measures less and logs one warning.
#ifndef PLUGIN_RUNTIME_RUNTIME_H_
#define PLUGIN_RUNTIME_RUNTIME_H_

#include <atomic>
#include <cstdint>

#include "plugin/abi/common.h"
#include "plugin/tracker/tracker.h"

namespace nccl_pulse {

// The arguments of a profiler's init, in one form for all API versions. Valid during the call.
struct InitArguments {
  int api_version;
  uint64_t comm_id;       // 0: not passed by this version
  const char* comm_name;  // may be null
  int nnodes, nranks, rank;
  abi::DebugLogger logger;  // may be null
};

class Runtime {
 public:
  // Adds a communicator. Stores its ticket in `context` (null if there is no room), and the event
  // mask, which is the same for all communicators of this NCCL (api_version.h).
  static void Init(const InitArguments& arguments, void** context, int* event_mask);
  static void Finalize(void* context);

  // Returns null if nothing is measured. Cost: one load. Acquire: sees the runtime as Init made it.
  static Tracker* tracker() { return tracker_.load(std::memory_order_acquire); }

 private:
  // Hidden, so that callbacks load it without the global offset table.
  [[gnu::visibility("hidden")]] static std::atomic<Tracker*> tracker_;
};

}  // namespace nccl_pulse

#endif  // PLUGIN_RUNTIME_RUNTIME_H_
