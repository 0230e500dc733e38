// Finds calls of the CUDA driver, in the library that the job uses.
//
// Thread: init's, under its lock.
#ifndef PLUGIN_CUDA_DRIVER_LIBRARY_H_
#define PLUGIN_CUDA_DRIVER_LIBRARY_H_

#include <dlfcn.h>

namespace nccl_pulse {

// The library may lack it: then false, and null in `function`.
template <typename Function>
bool FindCall(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(library, name));
  return *function != nullptr;
}

// Calls that are looked for once. It is a static variable of its user, without a constructor to
// run: a guarded one would not survive a fork during the call, and a child forked while another
// thread is in dlopen must not call dlopen.
template <typename Calls>
class DriverLibrary {
 public:
  // Null when the library is not there, or `find` says that it lacks a call. The same answer each
  // time.
  const Calls* Load(bool (*find)(void* library, Calls* calls)) {
    if (!looked_) {
      looked_ = true;
      void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);  // never closed
      loaded_ = library != nullptr && find(library, &calls_);
    }
    return loaded_ ? &calls_ : nullptr;
  }

 private:
  bool looked_ = false, loaded_ = false;
  Calls calls_{};
};

}  // namespace nccl_pulse

#endif  // PLUGIN_CUDA_DRIVER_LIBRARY_H_
