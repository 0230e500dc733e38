// NCCL 2.31.2 and later.
#include "plugin/abi/profiler_v7.h"
#include "plugin/adapter/adapter_v6.h"

extern "C" {
NCCL_PULSE_EXPORT nccl_pulse::Exported<nccl_pulse::abi::v7::Profiler> ncclProfiler_v7 = {
    {"Pulse", nccl_pulse::InitV6<7>,
     [](void* context, void** handle, nccl_pulse::abi::v7::Descriptor* descriptor) {
       return nccl_pulse::StartEventV6<7>(context, handle, descriptor);
     },
     nccl_pulse::StopEvent, nccl_pulse::RecordState<nccl_pulse::abi::v7::StateArgs>,
     nccl_pulse::FinalizeCommunicator}};
}  // extern "C"
