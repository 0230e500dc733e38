// NCCL 2.28.3 and later.
#include "plugin/adapter/adapter_v5.h"

extern "C" {
NCCL_PULSE_EXPORT nccl_pulse::Exported<nccl_pulse::abi::v5::Profiler> ncclProfiler_v5 = {
    {"Pulse", nccl_pulse::InitV5<5>, nccl_pulse::StartEventV5<5, nccl_pulse::abi::v5::Descriptor>,
     nccl_pulse::StopEvent, nccl_pulse::RecordState<nccl_pulse::abi::v5::StateArgs>,
     nccl_pulse::FinalizeCommunicator}};
}  // extern "C"
