#include "plugin/runtime/nccl_environment.h"

#include <dlfcn.h>

#include <algorithm>
#include <map>
#include <string_view>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "exporter/base/nccl_variables.h"
#include "exporter/base/text_hash.h"

namespace nccl_pulse {
namespace {

constexpr std::size_t kMostValueBytes = 48, kMostNameBytes = 48;
constexpr std::string_view kMore = " ...";

bool IsCompared(std::string_view name) {
  if (name == "TORCHCOMM_RANK" || name == "TORCHCOMM_SIZE") return false;  // a rank's own
  return IsNcclVariable(name) && !absl::StartsWith(name, "NCCL_PULSE_");
}

std::string Shown(std::string_view name, std::string_view value) {
  if (IsSecretVariable(name)) return std::string(kWithheld);
  const bool is_long = value.size() > kMostValueBytes;
  std::string shown(value.substr(0, kMostValueBytes));
  std::replace_if(
      shown.begin(), shown.end(), [](char c) { return c <= ' ' && c >= '\0'; }, '_');
  if (is_long) absl::StrAppend(&shown, "~", absl::Hex(TextHash(value), absl::kZeroPad16));
  return shown;
}

}  // namespace

std::string FindNcclVersion(abi::DebugLogger logger) {
  Dl_info nccl;
  if (logger == nullptr || dladdr(reinterpret_cast<void*>(logger), &nccl) == 0) return "";
  void* const library = dlopen(nccl.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) return "";
  void* const found = dlsym(library, "ncclGetVersion");
  int code = 0;
  Dl_info same;
  // Another NCCL may lie in the same scope.
  if (found != nullptr && dladdr(found, &same) != 0 && same.dli_fbase == nccl.dli_fbase) {
    // It returns a constant (NCCL 2.28.9, src/init.cc), so it may be called within NCCL's own init.
    reinterpret_cast<int (*)(int*)>(found)(&code);
  }
  dlclose(library);
  if (code < 10000) return "";
  return absl::StrCat(code / 10000, ".", code / 100 % 100, ".", code % 100);
}

std::string DescribeNcclEnvironment(char* const* environment, const std::string& version,
                                    std::size_t most_bytes) {
  std::map<std::string_view, std::string_view> variables;
  for (char* const* each = environment; each != nullptr && *each != nullptr; ++each) {
    const std::string_view text = *each;
    const std::size_t end = text.find('=');
    if (end > kMostNameBytes) continue;  // or npos
    const std::string_view name = text.substr(0, end);
    if (!IsCompared(name)) continue;
    const bool is_odd = std::any_of(name.begin(), name.end(), [](char c) { return c <= ' '; });
    if (!is_odd) variables.emplace(name, text.substr(end + 1));
  }
  std::string described = version.empty() ? "" : absl::StrCat("NCCL=", version);
  for (const auto& [name, value] : variables) {
    const std::string more =
        absl::StrCat(described.empty() ? "" : " ", name, "=", Shown(name, value));
    if (described.size() + more.size() + kMore.size() > most_bytes) {
      return absl::StrCat(described, kMore);
    }
    described += more;
  }
  return described;
}

}  // namespace nccl_pulse
