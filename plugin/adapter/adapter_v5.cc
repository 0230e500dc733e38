// NCCL 2.28.3 and later.
#include "plugin/adapter/adapter_v5.h"

#include "plugin/abi/profiler_v5.h"

namespace nccl_pulse {
namespace {

int InitV5(void** context, uint64_t comm_id, int* mask, const char* comm_name, int nnodes,
           int nranks, int rank, abi::DebugLogger logger) {
  return InitCommunicator({5, comm_id, comm_name, nnodes, nranks, rank, logger}, context, mask);
}

int StartV5(void* context, void** handle, abi::v5::Descriptor* descriptor) {
  return StartEventV5(context, handle, descriptor,
                      [&](Tracker& tracker) { return PassOver(tracker, descriptor->type, 5); });
}

}  // namespace
}  // namespace nccl_pulse

extern "C" {
NCCL_PULSE_EXPORT nccl_pulse::Exported<nccl_pulse::abi::v5::Profiler> ncclProfiler_v5 = {
    {"Pulse", nccl_pulse::InitV5, nccl_pulse::StartV5, nccl_pulse::StopEvent,
     nccl_pulse::RecordState<nccl_pulse::abi::v5::StateArgs>, nccl_pulse::FinalizeCommunicator}};
}  // extern "C"
