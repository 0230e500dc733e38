// What NCCL passes at the init of a communicator, in one form for all versions of its API.
//
// Thread: plain data, for the length of the call.
#ifndef PLUGIN_RUNTIME_INIT_ARGUMENTS_H_
#define PLUGIN_RUNTIME_INIT_ARGUMENTS_H_

#include <cstdint>

#include "plugin/abi/common.h"

namespace nccl_pulse {

struct InitArguments {
  int api_version;
  uint64_t comm_id;       // 0: this version does not say
  const char* comm_name;  // may be null
  int nnodes, nranks, rank;
  abi::DebugLogger logger;  // may be null
};

}  // namespace nccl_pulse

#endif  // PLUGIN_RUNTIME_INIT_ARGUMENTS_H_
