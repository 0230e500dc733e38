// Converts operations of API v4 and later to events. The descriptors' fields have the same names in
// every version, at different offsets.
#ifndef PLUGIN_ADAPTER_ADAPTER_V4_H_
#define PLUGIN_ADAPTER_ADAPTER_V4_H_

#include "plugin/adapter/adapter.h"

namespace nccl_pulse {

// Returns the protocol of a collective, or kSymmetricProtocol for a symmetric-memory kernel. Only
// v7 identifies these kernels (NCCL 2.31.2, ncclProfilerStartTaskEvents in src/plugin/profiler.cc:
// proto is "", algo names the kernel).
template <typename Coll>
auto ProtocolOf(const Coll& coll, int /*preferred*/) -> decltype(coll.isSymColl, coll.proto) {
  return coll.isSymColl ? kSymmetricProtocol : coll.proto;
}
template <typename Coll>
auto ProtocolOf(const Coll& coll, long /*before v7*/) {
  return coll.proto;
}

// Returns the ticket of the operation's call; 0 in v4, where the parent is the Group.
template <typename Descriptor>
uint64_t ParentCallOf(const Descriptor& descriptor, bool counts_as_call) {
  return counts_as_call ? 0 : TicketOf(descriptor.parentObj);
}

// `counts_as_call`: the version has no event for the call itself (before v5).
template <typename Descriptor>
OperationEvent CollectiveOf(const Descriptor& descriptor, bool counts_as_call) {
  const auto& coll = descriptor.coll;
  OperationEvent event{};
  event.func = coll.func;
  event.datatype = coll.datatype;
  event.algo = coll.algo;
  event.proto = ProtocolOf(coll, 0);
  event.count = coll.count;
  event.sequence = coll.seqNumber;
  event.parent = ParentCallOf(descriptor, counts_as_call);
  event.root_or_peer = coll.root;
  event.rank = descriptor.rank;
  event.channels = coll.nChannels;
  event.is_collective = true;
  event.counts_as_call = counts_as_call;
  return event;
}

template <typename Descriptor>
OperationEvent PointToPointOf(const Descriptor& descriptor, bool counts_as_call) {
  const auto& p2p = descriptor.p2p;
  OperationEvent event{};
  event.func = p2p.func;
  event.datatype = p2p.datatype;
  event.count = p2p.count;
  event.parent = ParentCallOf(descriptor, counts_as_call);
  event.root_or_peer = p2p.peer;
  event.rank = descriptor.rank;
  event.channels = p2p.nChannels;
  event.counts_as_call = counts_as_call;
  return event;
}

template <typename Descriptor>
KernelChannelEvent KernelChannelOf(const Descriptor& descriptor) {
  return {TicketOf(descriptor.parentObj), descriptor.kernelCh.pTimer,
          descriptor.kernelCh.channelId};
}

}  // namespace nccl_pulse

#endif  // PLUGIN_ADAPTER_ADAPTER_V4_H_
