// Finds functions of the CUDA driver in the library that the job uses.
//
// Thread: init, under its lock.
#ifndef PLUGIN_CUDA_DRIVER_LIBRARY_H_
#define PLUGIN_CUDA_DRIVER_LIBRARY_H_

#include <dlfcn.h>

namespace nccl_pulse {

// Stores the function `name` in `function`. Returns false, and stores null, if the library lacks
// it.
template <typename Function>
bool FindCall(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(library, name));
  return *function != nullptr;
}

// Loads the driver library once, with the functions in `Calls`.
//
// Declare it as a static variable. Its constructor is constant: a guarded initialization would not
// survive a fork during the call, and a child that was forked while another thread was in dlopen
// must not call dlopen.
template <typename Calls>
class DriverLibrary {
 public:
  // Returns null if there is no library, or if `find` returns false because it lacks a function.
  // Every call returns the same pointer.
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
