// Errors of the CUDA driver after which a context does nothing more: each later call gives the same
// one, and only the end of the process helps. They say that something is wrong with this GPU, or
// with what ran on it. Numbers and names are the driver API's (CUresult, cuda.h 13.0).
//
// Thread: pure functions.
#ifndef METRICS_DRIVER_ERROR_H_
#define METRICS_DRIVER_ERROR_H_

#include <cstdint>

namespace nccl_pulse {

// "CUDA_ERROR_ECC_UNCORRECTABLE"; null for any other number.
const char* DriverErrorName(uint32_t error);

// Whether it may be the consequence of what happened to another GPU: a link between the two.
bool MayBePeersError(uint32_t error);

}  // namespace nccl_pulse

#endif  // METRICS_DRIVER_ERROR_H_
