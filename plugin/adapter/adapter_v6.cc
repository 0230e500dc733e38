// NCCL 2.29.2 and later.
#include "plugin/abi/profiler_v6.h"
#include "plugin/adapter/adapter_v5.h"

extern "C" {
NCCL_PULSE_EXPORT nccl_pulse::Exported<nccl_pulse::abi::v6::Profiler> ncclProfiler_v6 = {
    {"Pulse", nccl_pulse::InitV5<6>, nccl_pulse::StartEventV5<6, nccl_pulse::abi::v6::Descriptor>,
     nccl_pulse::StopEvent, nccl_pulse::RecordState<nccl_pulse::abi::v6::StateArgs>,
     nccl_pulse::FinalizeCommunicator}};
}  // extern "C"
