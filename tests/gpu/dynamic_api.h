// NCCL and the CUDA runtime, found and loaded at run time.
#ifndef TESTS_GPU_DYNAMIC_API_H_
#define TESTS_GPU_DYNAMIC_API_H_

#include <string>

#include "tests/gpu/nccl_api.h"

namespace nccl_pulse {

// Named as they are found.
// NOLINTBEGIN(readability-identifier-naming,bugprone-macro-parentheses)
struct Api {
#define NCCL_PULSE_DECLARE(name, parameters) int(*name) parameters = nullptr;
  NCCL_PULSE_NCCL_FUNCTIONS(NCCL_PULSE_DECLARE)
  NCCL_PULSE_CUDA_FUNCTIONS(NCCL_PULSE_DECLARE)
#undef NCCL_PULSE_DECLARE
  const char* (*ncclGetErrorString)(int result) = nullptr;
  const char* (*ncclGetLastError)(NcclComm comm) = nullptr;
  const char* (*cudaGetErrorString)(int error) = nullptr;
};
// NOLINTEND(readability-identifier-naming,bugprone-macro-parentheses)

// Looks for libnccl.so.2 and libcudart.so.13 or .12 in the folders of `path` ("a:b:c"), then where
// the dynamic linker looks. False, with what was not found in `error`.
bool LoadApi(const std::string& path, Api* api, std::string* error);

}  // namespace nccl_pulse

#endif  // TESTS_GPU_DYNAMIC_API_H_
