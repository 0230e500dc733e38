// Recognizes sticky errors of the CUDA driver: every later call in the context returns the same
// error until the process ends. The cause is a fault of this GPU or of a kernel on it, with the two
// exceptions below. Numbers and names are the driver API's (CUresult, cuda.h 13.0).
//
// Thread: pure functions.
#ifndef METRICS_DRIVER_ERROR_H_
#define METRICS_DRIVER_ERROR_H_

#include <cstdint>

namespace nccl_pulse {

// Returns, for example, "CUDA_ERROR_ECC_UNCORRECTABLE"; null for any other number.
const char* DriverErrorName(uint32_t error);

// True if a fault of another GPU may have caused the error, through a link between the two.
bool MayBePeersError(uint32_t error);

// True if the end of another process may have caused the error, because a kernel used its memory.
// Seen with four ranks on one GPU under MPS.
bool MayFollowPeersEnd(uint32_t error);

}  // namespace nccl_pulse

#endif  // METRICS_DRIVER_ERROR_H_
