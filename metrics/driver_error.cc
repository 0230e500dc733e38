#include "metrics/driver_error.h"

namespace nccl_pulse {

const char* DriverErrorName(uint32_t error) {
  switch (error) {
    case 214:
      return "CUDA_ERROR_ECC_UNCORRECTABLE";
    case 220:
      return "CUDA_ERROR_NVLINK_UNCORRECTABLE";
    case 226:
      return "CUDA_ERROR_CONTAINED";
    case 700:
      return "CUDA_ERROR_ILLEGAL_ADDRESS";
    case 702:
      return "CUDA_ERROR_LAUNCH_TIMEOUT";
    case 710:
      return "CUDA_ERROR_ASSERT";
    case 714:
      return "CUDA_ERROR_HARDWARE_STACK_ERROR";
    case 715:
      return "CUDA_ERROR_ILLEGAL_INSTRUCTION";
    case 716:
      return "CUDA_ERROR_MISALIGNED_ADDRESS";
    case 717:
      return "CUDA_ERROR_INVALID_ADDRESS_SPACE";
    case 718:
      return "CUDA_ERROR_INVALID_PC";
    case 719:
      return "CUDA_ERROR_LAUNCH_FAILED";
    case 721:
      return "CUDA_ERROR_TENSOR_MEMORY_LEAK";
    case 999:
      return "CUDA_ERROR_UNKNOWN";
    default:
      return nullptr;
  }
}

bool MayBePeersError(uint32_t error) {
  return error == 220 || error == 226 || error == 719 || error == 999;
}

bool MayFollowPeersEnd(uint32_t error) { return error == 700 || MayBePeersError(error); }

}  // namespace nccl_pulse
