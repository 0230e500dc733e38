#include "plugin/next/next_library.h"

#include <dlfcn.h>

#include "absl/strings/str_cat.h"

namespace nccl_pulse {

bool NextLibrary::Load(const char* path, const abi::ByVersion<const void*>& own,
                       std::string* error) {
  void* const library = dlopen(path, RTLD_NOW | RTLD_LOCAL);  // as NCCL does
  if (library == nullptr) {
    const char* const why = dlerror();
    *error = why != nullptr ? why : "the library cannot be loaded";
    return false;
  }
  bool is_any = false;
  for (std::size_t version = 1; version < profilers_.size(); ++version) {
    const std::string symbol = absl::StrCat("ncclProfiler_v", version);
    auto* const found = static_cast<abi::AnyProfiler*>(dlsym(library, symbol.c_str()));
    if (found == own[version] && found != nullptr) {
      *error = "this is NCCL Pulse itself";
      profilers_ = {};
      return false;
    }
    const bool is_complete = found != nullptr && found->init != nullptr &&
                             found->startEvent != nullptr && found->stopEvent != nullptr &&
                             found->recordEventState != nullptr && found->finalize != nullptr;
    if (is_complete) profilers_[version] = found;
    is_any |= is_complete;
  }
  if (!is_any) {
    *error =
        absl::StrCat("the library exports no complete ncclProfiler_v1 to v", abi::kNewestVersion);
  }
  return is_any;
}

int NextLibrary::VersionFor(int api_version) const {
  const int oldest = api_version >= 5 ? 4 : api_version;
  for (int version = api_version; version >= oldest; --version) {
    if (profiler(version) != nullptr) return version;
  }
  return 0;
}

std::string NextLibrary::Versions() const {
  std::string text;
  for (std::size_t version = 1; version < profilers_.size(); ++version) {
    if (profilers_[version] != nullptr) absl::StrAppend(&text, text.empty() ? "v" : ", v", version);
  }
  return text;
}

}  // namespace nccl_pulse
