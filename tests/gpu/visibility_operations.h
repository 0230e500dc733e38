// The operations that visibility_program makes, by name.
//
// What not every release of NCCL has is looked up when it is called; where it is missing the call
// fails with kNcclInvalidArgument. Source of the declarations: nccl.h of NCCL 2.30.7.
#ifndef TESTS_GPU_VISIBILITY_OPERATIONS_H_
#define TESTS_GPU_VISIBILITY_OPERATIONS_H_

#include <climits>
#include <cstdint>
#include <string>

#include "tests/gpu/nccl_api.h"
#include "tests/gpu/rank.h"

namespace nccl_pulse {

inline constexpr int kCaptureModeThreadLocal = 1;  // cudaStreamCaptureModeThreadLocal

struct CallArguments {
  NcclComm comm;
  CudaStream stream;
  int rank, nranks;
  void *send, *recv;  // BufferBytes each
  void* recv_window;  // of one-sided operations
};

struct Operation {
  const char* name;
  NcclResult (*call)(const Api& api, const CallArguments& arguments);
  bool needs_windows = false;  // symmetric memory
  int cta_policy = INT_MIN;    // of the communicator's config; INT_MIN: not set
};

// Null: there is none of that name.
const Operation* FindOperation(const std::string& name);

uint64_t BufferBytes(int nranks);
// An AllReduce beside the operation.
NcclResult ReduceFourBytes(const Api& api, const CallArguments& arguments, void* memory);
// Returns when a call on a non-blocking communicator is done.
NcclResult Finish(const Api& api, NcclComm comm, NcclResult result);
// Allocates both buffers and registers them with the communicator, as symmetric memory.
NcclResult MakeWindows(const Api& api, CallArguments* arguments);

}  // namespace nccl_pulse

#endif  // TESTS_GPU_VISIBILITY_OPERATIONS_H_
