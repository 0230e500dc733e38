// The lock of init and finalize. Callbacks never take it.
//
// It is never destroyed, since init may be called while the process exits.
//
// Thread: any; Reset in the child of a fork alone.
#ifndef PLUGIN_RUNTIME_INIT_LOCK_H_
#define PLUGIN_RUNTIME_INIT_LOCK_H_

#include <mutex>

namespace nccl_pulse {

class InitLock {
 public:
  static std::mutex& Mutex();
  // The thread that held it does not exist in the child. Async-signal-safe.
  static void Reset();
};

}  // namespace nccl_pulse

#endif  // PLUGIN_RUNTIME_INIT_LOCK_H_
