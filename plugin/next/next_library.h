// The library that NCCL_PULSE_NEXT_PLUGIN names, and which of its exported profilers an NCCL would
// use.
//
// Thread: Load under the chain's lock, once; the rest read only. Cost of Load: dlopen. It is never
// closed: events of it may be under way. Errors: a sentence.
#ifndef PLUGIN_NEXT_NEXT_LIBRARY_H_
#define PLUGIN_NEXT_NEXT_LIBRARY_H_

#include <string>

#include "plugin/abi/common.h"

namespace nccl_pulse {

class NextLibrary {
 public:
  // `own` holds what this library exports: it is not its own next one. False: `error` says why.
  bool Load(const char* path, const abi::ByVersion<const void*>& own, std::string* error);

  // The version that an NCCL of `api_version` would use: the newest that both know, as far as its
  // events can be told in that version (5 to 7 in each older one down to 4, others in their own).
  // 0: none.
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
