// NextLibrary loads a second profiler plugin, named by NCCL_PULSE_NEXT_PLUGIN, to which this plugin
// forwards events (chain.cc), and selects the API version in which to call it.
//
// Thread: Load once, under the lock of chain.cc; other functions only read. Cost of Load: dlopen.
// The library is never closed, because its events may be in progress.
#ifndef PLUGIN_NEXT_NEXT_LIBRARY_H_
#define PLUGIN_NEXT_NEXT_LIBRARY_H_

#include <string>

#include "plugin/abi/common.h"

namespace nccl_pulse {

class NextLibrary {
 public:
  // Loads the library. `own`: this plugin's exports, to refuse it as its own next profiler.
  // Returns false, with the reason in `error`, on failure.
  bool Load(const char* path, const abi::ByVersion<const void*>& own, std::string* error);

  // Returns the newest version that the library supports and to which the events of an NCCL of
  // `api_version` can be converted; 0: none. Events of v5 to v7 can be converted down to v4, older
  // events not at all.
  int VersionFor(int api_version) const;
  abi::AnyProfiler* profiler(int version) const {
    return profilers_[static_cast<std::size_t>(version)];
  }
  std::string Versions() const;  // "v4, v5"

 private:
  abi::ByVersion<abi::AnyProfiler*> profilers_{};
};

}  // namespace nccl_pulse

#endif  // PLUGIN_NEXT_NEXT_LIBRARY_H_
