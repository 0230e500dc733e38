// NCCL 2.31.2 and later.
#include "plugin/abi/profiler_v7.h"
#include "plugin/adapter/adapter_v5.h"

extern "C" {
NCCL_PULSE_EXPORT nccl_pulse::Exported<nccl_pulse::abi::v7::Profiler> ncclProfiler_v7 = {
    {"Pulse", nccl_pulse::InitV5<7>, nccl_pulse::StartEventV5<7, nccl_pulse::abi::v7::Descriptor>,
     nccl_pulse::StopEvent, nccl_pulse::RecordState<nccl_pulse::abi::v7::StateArgs>,
     nccl_pulse::FinalizeCommunicator}};
}  // extern "C"
