// NCCL 2.29.2 and later.
#include "plugin/abi/profiler_v6.h"
#include "plugin/adapter_v5.h"

namespace nccl_pulse {
namespace {

using abi::v6::Descriptor;

int InitV6(void** context, uint64_t comm_id, int* mask, const char* comm_name, int nnodes,
           int nranks, int rank, abi::DebugLogger logger) {
  return InitCommunicator({6, comm_id, comm_name, nnodes, nranks, rank, logger}, context, mask);
}

int StartV6(void* context, void** handle, Descriptor* descriptor) {
  return StartEventV5(context, handle, descriptor, [&](Tracker& tracker) -> uint64_t {
    if (descriptor->type != abi::kEventCeColl) return PassOver(tracker, descriptor->type, 6);
    const Descriptor::CeColl& coll = descriptor->ceColl;
    return tracker.StartCopyEngineOperation(
        TicketOf(context),
        {coll.func, coll.datatype, coll.count, coll.stream, TicketOf(descriptor->parentObj)});
  });
}

}  // namespace
}  // namespace nccl_pulse

extern "C" {
NCCL_PULSE_EXPORT nccl_pulse::abi::v6::Profiler ncclProfiler_v6 = {
    "Pulse",
    nccl_pulse::InitV6,
    nccl_pulse::StartV6,
    nccl_pulse::StopEvent,
    nccl_pulse::RecordState<nccl_pulse::abi::v6::StateArgs>,
    nccl_pulse::FinalizeCommunicator};
}  // extern "C"
