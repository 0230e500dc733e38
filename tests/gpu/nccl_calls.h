// NCCL and the CUDA runtime as nccl_program calls them: what fails ends the process.
#ifndef TESTS_GPU_NCCL_CALLS_H_
#define TESTS_GPU_NCCL_CALLS_H_

#include <string>

#include "tests/gpu/dynamic_api.h"
#include "tests/gpu/nccl_api.h"

namespace nccl_pulse {

inline constexpr int kExitWrongResult = 1;
inline constexpr int kExitUsage = 2;
inline constexpr int kExitApi = 3;

extern Api g_api;

[[noreturn]] void Die(int status, const std::string& message);

void CheckCuda(CudaError error, const char* what);
void CheckNccl(NcclResult result, const char* what, NcclComm comm = nullptr);

// A non-blocking communicator's calls return before they are done.
void WaitForCall(NcclComm comm, const char* what);

}  // namespace nccl_pulse

#endif  // TESTS_GPU_NCCL_CALLS_H_
