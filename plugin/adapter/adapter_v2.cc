// NCCL 2.24 and 2.25.
#include "plugin/abi/profiler_v2.h"
#include "plugin/adapter/adapter_v3.h"

namespace nccl_pulse {
namespace {

int InitV2(void** context, int* mask) { return InitUnnamed(2, context, mask); }

int StartV2(void* context, void** handle, abi::v2::Descriptor* descriptor) {
  return StartEventV2(2, context, handle, descriptor);
}

int RecordV2(void* handle, int state, abi::v2::StateArgs* /*args*/) {
  return RecordStateWithoutTimes(handle, state);
}

}  // namespace
}  // namespace nccl_pulse

extern "C" {
NCCL_PULSE_EXPORT nccl_pulse::Exported<nccl_pulse::abi::v2::Profiler> ncclProfiler_v2 = {
    {"Pulse", nccl_pulse::InitV2, nccl_pulse::StartV2, nccl_pulse::StopEventV1,
     nccl_pulse::RecordV2, nccl_pulse::FinalizeCommunicator}};
}  // extern "C"
