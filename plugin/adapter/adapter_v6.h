// API v6 and v7: v7 is v6 with more behind the members of calls and operations.
#ifndef PLUGIN_ADAPTER_ADAPTER_V6_H_
#define PLUGIN_ADAPTER_ADAPTER_V6_H_

#include "plugin/adapter/adapter_v5.h"

namespace nccl_pulse {

template <int kApiVersion, typename Descriptor>
int StartEventV6(void* context, void** handle, const Descriptor* descriptor) {
  return StartEventV5(context, handle, descriptor, [&](Tracker& tracker) -> uint64_t {
    if (descriptor->type != abi::kEventCeColl) {
      return PassOver(tracker, descriptor->type, kApiVersion);
    }
    const auto& coll = descriptor->ceColl;
    return tracker.StartCopyEngineOperation(
        TicketOf(context),
        {coll.func, coll.datatype, coll.count, coll.stream, TicketOf(descriptor->parentObj)});
  });
}

template <int kApiVersion>
int InitV6(void** context, uint64_t comm_id, int* mask, const char* comm_name, int nnodes,
           int nranks, int rank, abi::DebugLogger logger) {
  return InitCommunicator({kApiVersion, comm_id, comm_name, nnodes, nranks, rank, logger}, context,
                          mask);
}

}  // namespace nccl_pulse

#endif  // PLUGIN_ADAPTER_ADAPTER_V6_H_
