// NCCL 2.29.2 and later.
#include "plugin/adapter/adapter_v6.h"

#include "plugin/abi/profiler_v6.h"

extern "C" {
NCCL_PULSE_EXPORT nccl_pulse::Exported<nccl_pulse::abi::v6::Profiler> ncclProfiler_v6 = {
    {"Pulse", nccl_pulse::InitV6<6>,
     [](void* context, void** handle, nccl_pulse::abi::v6::Descriptor* descriptor) {
       return nccl_pulse::StartEventV6<6>(context, handle, descriptor);
     },
     nccl_pulse::StopEvent, nccl_pulse::RecordState<nccl_pulse::abi::v6::StateArgs>,
     nccl_pulse::FinalizeCommunicator}};
}  // extern "C"
