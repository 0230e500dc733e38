// A profiler plugin that does nothing: the baseline of all our figures. It costs the call itself,
// and NCCL's work for the requested events.
//
//   EMPTY_PLUGIN_MASK=0x42   requests these events (default: the default events of NCCL Pulse)
//
// API versions 4 to 7, so that NCCL 2.27.3 and later use the same version as for NCCL Pulse.
#include <cstdlib>

#include "bench/plugin_parts.h"
#include "plugin/abi/profiler_v4.h"
#include "plugin/abi/profiler_v5.h"
#include "plugin/abi/profiler_v6.h"
#include "plugin/abi/profiler_v7.h"

namespace {

namespace abi = nccl_pulse::abi;
using nccl_pulse::bench::IgnoreFinalize;
using nccl_pulse::bench::IgnoreState;
using nccl_pulse::bench::kRealMask;

int Mask() {
  const char* mask = std::getenv("EMPTY_PLUGIN_MASK");
  return mask != nullptr ? static_cast<int>(std::strtol(mask, nullptr, 0)) : kRealMask;
}

int Init(void** context, uint64_t /*comm_id*/, int* mask, const char* /*comm_name*/, int /*nnodes*/,
         int /*nranks*/, int /*rank*/, abi::DebugLogger /*logger*/) {
  *context = nullptr;
  *mask = Mask();
  return abi::kSuccess;
}
int InitV4(void** context, int* mask, const char* comm_name, uint64_t comm_hash, int nnodes,
           int nranks, int rank, abi::DebugLogger logger) {
  return Init(context, comm_hash, mask, comm_name, nnodes, nranks, rank, logger);
}
template <typename Descriptor>
int Start(void* /*context*/, void** handle, Descriptor* /*descriptor*/) {
  *handle = nullptr;
  return abi::kSuccess;
}
int Stop(void* /*handle*/) { return abi::kSuccess; }

}  // namespace

extern "C" {
__attribute__((visibility("default")))
abi::v4::Profiler ncclProfiler_v4 = {"Empty", InitV4, Start, Stop, IgnoreState, IgnoreFinalize};
__attribute__((visibility("default")))
abi::v5::Profiler ncclProfiler_v5 = {"Empty", Init, Start, Stop, IgnoreState, IgnoreFinalize};
__attribute__((visibility("default")))
abi::v6::Profiler ncclProfiler_v6 = {"Empty", Init, Start, Stop, IgnoreState, IgnoreFinalize};
abi::v7::Profiler ncclProfiler_v7 = {"Empty", Init, Start, Stop, IgnoreState, IgnoreFinalize};
}  // extern "C"
