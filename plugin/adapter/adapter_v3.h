// Shared functions for API v1 to v3. In these versions the communicator's identity comes with its
// operations instead of init, and there are no GPU times.
#ifndef PLUGIN_ADAPTER_ADAPTER_V3_H_
#define PLUGIN_ADAPTER_ADAPTER_V3_H_

#include "plugin/adapter/adapter.h"

namespace nccl_pulse {

// Adds a communicator whose rank and size are not known yet.
inline int InitUnnamed(int api_version, void** context, int* mask) {
  return InitCommunicator({api_version, 0, nullptr, 0, 0, -1, nullptr}, context, mask);
}

// stopEvent of v1 and v2: NCCL 2.23 to 2.25 also stops operations without a handle
// (docs/nccl-profiler-api.md#handles).
inline int StopEventV1(void* handle) {
  return handle != nullptr ? StopEvent(handle) : abi::kSuccess;
}

// Returns the event without the fields that v1 passes as numbers, and v2 and v3 as strings. The
// caller fills these.
template <typename Descriptor>
OperationEvent CollectiveOf(const Descriptor& descriptor) {
  const auto& coll = descriptor.coll;
  OperationEvent event{};
  event.count = coll.count;
  event.sequence = coll.seqNumber;
  event.rank = descriptor.rank;
  event.root_or_peer = coll.root;
  event.is_collective = true;
  event.counts_as_call = true;
  event.comm_hash = coll.commHash;
  event.comm_name = coll.name;
  return event;
}

template <typename Descriptor>
OperationEvent PointToPointOf(const Descriptor& descriptor) {
  const auto& p2p = descriptor.p2p;
  OperationEvent event{};
  event.count = p2p.count;
  event.root_or_peer = p2p.peer;
  event.rank = descriptor.rank;
  event.counts_as_call = true;
  event.comm_hash = p2p.commHash;
  event.comm_name = p2p.name;
  return event;
}

// startEvent of v2 and v3.
template <typename Descriptor>
int StartEventV2(int api_version, void* context, void** handle, const Descriptor* descriptor) {
  return StartEvent(handle, descriptor, [&](Tracker& tracker) -> uint64_t {
    switch (descriptor->type) {
      case abi::kEventColl: {
        OperationEvent event = CollectiveOf(*descriptor);
        event.func = descriptor->coll.func;
        event.datatype = descriptor->coll.datatype;
        event.algo = descriptor->coll.algo;
        event.proto = descriptor->coll.proto;
        return tracker.StartOperation(TicketOf(context), event);
      }
      case abi::kEventP2p: {
        OperationEvent event = PointToPointOf(*descriptor);
        event.func = descriptor->p2p.func;
        event.datatype = descriptor->p2p.datatype;
        return tracker.StartOperation(TicketOf(context), event);
      }
      case abi::kEventProxyOp:
        return StartProxyOp(tracker, context, *descriptor);
      default:
        return PassOver(tracker, descriptor->type, api_version);
    }
  });
}

}  // namespace nccl_pulse

#endif  // PLUGIN_ADAPTER_ADAPTER_V3_H_
