#include "tests/gpu/nccl_calls.h"

#include <unistd.h>

#include <chrono>
#include <iostream>
#include <thread>

namespace nccl_pulse {

Api g_api;

void Die(int status, const std::string& message) {
  std::cerr << "nccl_program: " << message << std::endl;
  // Other threads may be inside NCCL: no destructors.
  _exit(status);
}

void CheckCuda(CudaError error, const char* what) {
  if (error != 0) Die(kExitApi, std::string(what) + ": " + g_api.cudaGetErrorString(error));
}

void CheckNccl(NcclResult result, const char* what, NcclComm comm) {
  if (result == kNcclSuccess || result == kNcclInProgress) return;
  Die(kExitApi, std::string(what) + ": " + g_api.ncclGetErrorString(result) + ", " +
                    g_api.ncclGetLastError(comm));
}

void WaitForCall(NcclComm comm, const char* what) {
  NcclResult result = kNcclInProgress;
  while (true) {
    CheckNccl(g_api.ncclCommGetAsyncError(comm, &result), what, comm);
    if (result != kNcclInProgress) break;
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  CheckNccl(result, what, comm);
}

}  // namespace nccl_pulse
