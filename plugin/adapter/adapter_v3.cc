// NCCL 2.26.
#include "plugin/adapter/adapter_v3.h"

#include "plugin/abi/profiler_v3.h"

namespace nccl_pulse {
namespace {

int InitV3(void** context, int* mask) { return InitUnnamed(3, context, mask); }

int StartV3(void* context, void** handle, abi::v3::Descriptor* descriptor) {
  return StartEventV2(3, context, handle, descriptor);
}

int RecordV3(void* handle, int state, abi::v3::StateArgs* /*args*/) {
  return RecordStateWithoutTimes(handle, state);
}

}  // namespace
}  // namespace nccl_pulse

extern "C" {
NCCL_PULSE_EXPORT nccl_pulse::Exported<nccl_pulse::abi::v3::Profiler> ncclProfiler_v3 = {
    {"Pulse", nccl_pulse::InitV3, nccl_pulse::StartV3, nccl_pulse::StopEvent, nccl_pulse::RecordV3,
     nccl_pulse::FinalizeCommunicator}};
}  // extern "C"
