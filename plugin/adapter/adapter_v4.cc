// NCCL 2.27. It reports neither the user's calls nor launches, so an operation counts as its call.
#include "plugin/adapter/adapter_v4.h"

#include "plugin/abi/profiler_v4.h"

namespace nccl_pulse {
namespace {

using abi::v4::Descriptor;

int InitV4(void** context, int* mask, const char* comm_name, uint64_t comm_hash, int nnodes,
           int nranks, int rank, abi::DebugLogger logger) {
  return InitCommunicator({4, comm_hash, comm_name, nnodes, nranks, rank, logger}, context, mask);
}

int StartV4(void* context, void** handle, Descriptor* descriptor) {
  return StartEvent(handle, descriptor, [&](Tracker& tracker) -> uint64_t {
    switch (descriptor->type) {
      case abi::kEventColl:
        return tracker.StartOperation(TicketOf(context), CollectiveOf(*descriptor, true));
      case abi::kEventP2p:
        return tracker.StartOperation(TicketOf(context), PointToPointOf(*descriptor, true));
      case abi::kEventProxyOp:
        return StartProxyOp(tracker, context, *descriptor);
      case abi::kEventKernelCh:
        return tracker.StartKernelChannel(TicketOf(context), KernelChannelOf(*descriptor));
      default:
        return PassOver(tracker, descriptor->type, 4);
    }
  });
}

}  // namespace
}  // namespace nccl_pulse

extern "C" {
NCCL_PULSE_EXPORT nccl_pulse::Exported<nccl_pulse::abi::v4::Profiler> ncclProfiler_v4 = {
    {"Pulse", nccl_pulse::InitV4, nccl_pulse::StartV4, nccl_pulse::StopEvent,
     nccl_pulse::RecordState<nccl_pulse::abi::v4::StateArgs>, nccl_pulse::FinalizeCommunicator}};
}  // extern "C"
