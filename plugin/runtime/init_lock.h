// InitLock serializes init and finalize. Callbacks never take it. It is never destroyed, because
// init may be called while the process exits.
//
// Thread: any; Reset only in a forked child.
#ifndef PLUGIN_RUNTIME_INIT_LOCK_H_
#define PLUGIN_RUNTIME_INIT_LOCK_H_

#include <mutex>

namespace nccl_pulse {

class InitLock {
 public:
  static std::mutex& Mutex();
  // Makes the lock free in a forked child, where the thread that held it does not exist.
  // Async-signal-safe.
  static void Reset();
};

}  // namespace nccl_pulse

#endif  // PLUGIN_RUNTIME_INIT_LOCK_H_
