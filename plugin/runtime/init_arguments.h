// InitArguments holds what NCCL passes to a profiler's init, in one form for all API versions.
//
// Thread: plain data, valid during the call.
#ifndef PLUGIN_RUNTIME_INIT_ARGUMENTS_H_
#define PLUGIN_RUNTIME_INIT_ARGUMENTS_H_

#include <cstdint>

#include "plugin/abi/common.h"

namespace nccl_pulse {

struct InitArguments {
  int api_version;
  uint64_t comm_id;       // 0: not passed by this version
  const char* comm_name;  // may be null
  int nnodes, nranks, rank;
  abi::DebugLogger logger;  // may be null
};

}  // namespace nccl_pulse

#endif  // PLUGIN_RUNTIME_INIT_ARGUMENTS_H_
