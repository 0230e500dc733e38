// Recognizes environment variables that configure NCCL, or the part of PyTorch that calls it:
// ProcessGroupNCCL, its Flight Recorder, the backend nccl2 and torchcomms. Ranks are compared by
// these variables, and captures keep them. Source: PyTorch, torch/csrc/distributed/c10d;
// torchcomms, TorchCommOptions.cpp.
//
// Thread: any, no state.
#ifndef EXPORTER_BASE_NCCL_VARIABLES_H_
#define EXPORTER_BASE_NCCL_VARIABLES_H_

#include <string>
#include <string_view>

namespace nccl_pulse {

// `variable`: a name, or "NAME=VALUE".
inline bool IsNcclVariable(std::string_view variable) {
  for (const std::string_view prefix :
       {"NCCL_", "TORCH_NCCL_", "TORCH_FR_", "TORCH_DIST", "TORCHCOMM"}) {
    if (variable.substr(0, prefix.size()) == prefix) return true;
  }
  return false;
}

// True if the value of a variable with this name is withheld from every output: the endpoint's
// pages, captures and reports.
inline bool IsSecretVariable(std::string_view name) {
  std::string upper(name);
  for (char& c : upper) c = c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  for (const char* word : {"TOKEN", "SECRET", "PASS", "KEY", "CREDENTIAL", "AUTH", "COOKIE"}) {
    if (upper.find(word) != upper.npos) return true;
  }
  return false;
}
inline constexpr std::string_view kWithheld = "(withheld)";

}  // namespace nccl_pulse

#endif  // EXPORTER_BASE_NCCL_VARIABLES_H_
