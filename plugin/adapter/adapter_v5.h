// Adapter template for API v5 to v7. v6 adds copy-engine collectives; v7 adds members at the end of
// calls and operations.
//
// startEvent dispatches by event type, in the order in which an operation's events come. The types
// that come with most calls have a fast path (StartUsual) for their usual case (tracker.h:
// CountUsualCall and its kin). Otherwise it changes nothing, and StartUnusual handles the event.
#ifndef PLUGIN_ADAPTER_ADAPTER_V5_H_
#define PLUGIN_ADAPTER_ADAPTER_V5_H_

#include "plugin/abi/profiler_v5.h"
#include "plugin/adapter/adapter_v4.h"

namespace nccl_pulse {

template <int kApiVersion>
int InitV5(void** context, uint64_t comm_id, int* mask, const char* comm_name, int nnodes,
           int nranks, int rank, abi::DebugLogger logger) {
  return InitCommunicator({kApiVersion, comm_id, comm_name, nnodes, nranks, rank, logger}, context,
                          mask);
}

// Returns the user's tag of the call; 0: none.
template <typename Call>
auto UserTagOf(const Call& call, int /*preferred*/) -> decltype(call.userTag) {
  return call.userTag;
}
template <typename Call>
uint64_t UserTagOf(const Call& /*call*/, long /*before v7*/) {
  return 0;
}

// Returns the root, or -1 for Send and Recv, whose peer comes with the operation.
template <typename Call>
auto RootOf(const Call& call, int /*preferred*/) -> decltype(call.root) {
  return call.root;
}
template <typename Call>
int32_t RootOf(const Call& /*call*/, long /*of Send and Recv*/) {
  return -1;
}

template <typename Call>
CallEvent CallOf(const Call& call, const void* parent) {
  return {call.func,        call.datatype, call.count,         call.graphCaptured,
          TicketOf(parent), call.stream,   UserTagOf(call, 0), RootOf(call, 0)};
}

// Starts an event of a type that only some of these versions have.
template <typename Descriptor>
auto StartOther(Tracker& tracker, void* context, const Descriptor& descriptor, int api_version)
    -> decltype(descriptor.ceColl.count) {
  if (descriptor.type != abi::kEventCeColl) return PassOver(tracker, descriptor.type, api_version);
  const auto& coll = descriptor.ceColl;
  return tracker.StartCopyEngineOperation(
      TicketOf(context),
      {coll.func, coll.datatype, coll.count, coll.stream, TicketOf(descriptor.parentObj)});
}
inline uint64_t StartOther(Tracker& tracker, void* /*context*/,
                           const abi::v5::Descriptor& descriptor, int api_version) {
  return PassOver(tracker, descriptor.type, api_version);
}

// Starts an event of type kType; 0: any type that StartEventV5 and StartSeldom do not list. The
// attribute `used` keeps the compiler from changing the parameters, so NCCL's arguments stay in
// their registers.
template <int kApiVersion, uint64_t kType, typename Descriptor>
[[gnu::used, gnu::flatten, gnu::noinline]] int StartOfType(void* context, void** handle,
                                                           const Descriptor& descriptor,
                                                           Tracker& tracker) {
  uint64_t ticket = 0;
  if constexpr (kType == abi::kEventGroupApi) {
    // Each call opens its own group within the user's (docs/nccl-profiler-api.md#groups).
    ticket = tracker.StartGroup(TicketOf(context), descriptor.groupApi.graphCaptured,
                                descriptor.groupApi.groupDepth == 1);
  } else if constexpr (kType == abi::kEventCollApi) {
    ticket = tracker.StartCall(TicketOf(context), CallOf(descriptor.collApi, descriptor.parentObj));
  } else if constexpr (kType == abi::kEventP2pApi) {
    ticket = tracker.StartCall(TicketOf(context), CallOf(descriptor.p2pApi, descriptor.parentObj));
  } else if constexpr (kType == abi::kEventKernelLaunch) {
    ticket = tracker.StartLaunch(TicketOf(context),
                                 {descriptor.kernelLaunch.stream, TicketOf(descriptor.parentObj)});
  } else if constexpr (kType == abi::kEventColl) {
    ticket = tracker.StartOperation(TicketOf(context), CollectiveOf(descriptor, false));
  } else if constexpr (kType == abi::kEventP2p) {
    ticket = tracker.StartOperation(TicketOf(context), PointToPointOf(descriptor, false));
  } else if constexpr (kType == abi::kEventKernelCh) {
    ticket = tracker.StartKernelChannel(TicketOf(context), KernelChannelOf(descriptor));
  } else if constexpr (kType == abi::kEventProxyOp) {
    ticket = StartProxyOp(tracker, context, descriptor);
  } else if constexpr (kType == abi::kEventProxyStep) {  // its context may be another process'
    ticket = tracker.StartStep(TicketOf(descriptor.parentObj));
  } else {
    static_assert(kType == 0);
    ticket = StartOther(tracker, context, descriptor, kApiVersion);
  }
  *handle = PointerOf(ticket);
  return abi::kSuccess;
}

// Calls StartOfType from a separate function, which keeps its code out of StartUsual.
template <int kApiVersion, uint64_t kType, typename Descriptor>
[[gnu::cold, gnu::noinline]] int StartUnusual(void* context, void** handle,
                                              const Descriptor& descriptor, Tracker& tracker) {
  return StartOfType<kApiVersion, kType>(context, handle, descriptor, tracker);
}

// Starts an event of a type with a fast path. Each type has its own function, which reads the
// descriptor in place and has its own stack frame. If the fast path does not apply, it has had no
// effect, and StartUnusual handles the event.
template <int kApiVersion, uint64_t kType, typename Descriptor>
[[gnu::hot, gnu::flatten, gnu::noinline]] int StartUsual(void* context, void** handle,
                                                         const Descriptor& descriptor,
                                                         Tracker& tracker) {
  bool is_usual = false;
  uint64_t ticket = 0;
  if constexpr (kType == abi::kEventGroupApi) {
    is_usual = tracker.StartUsualGroup(TicketOf(context), descriptor.groupApi.graphCaptured,
                                       descriptor.groupApi.groupDepth == 1);
  } else if constexpr (kType == abi::kEventKernelLaunch) {
    is_usual = tracker.StartUsualLaunch(
        TicketOf(context), {descriptor.kernelLaunch.stream, TicketOf(descriptor.parentObj)},
        &ticket);
  } else if constexpr (kType == abi::kEventKernelCh) {
    is_usual = tracker.StartUsualChannel(TicketOf(context), KernelChannelOf(descriptor), &ticket);
  } else if constexpr (kType == abi::kEventCollApi) {
    is_usual =
        tracker.CountUsualCall(TicketOf(context), CallOf(descriptor.collApi, descriptor.parentObj));
  } else if constexpr (kType == abi::kEventP2pApi) {
    is_usual =
        tracker.CountUsualCall(TicketOf(context), CallOf(descriptor.p2pApi, descriptor.parentObj));
  } else if constexpr (kType == abi::kEventColl) {
    is_usual = tracker.CountUsualOperation(TicketOf(context), CollectiveOf(descriptor, false));
  } else if constexpr (kType == abi::kEventP2p) {
    is_usual = tracker.CountUsualOperation(TicketOf(context), PointToPointOf(descriptor, false));
  }
  if (__builtin_expect(!is_usual, 0)) {
    return StartUnusual<kApiVersion, kType>(context, handle, descriptor, tracker);
  }
  *handle = PointerOf(ticket);
  return abi::kSuccess;
}

// Stands for all event types that most eager (uncaptured) collectives do not cause. StartSeldom, a
// separate function, dispatches them after the other types.
inline constexpr uint64_t kEventOther = UINT64_MAX;
template <int kApiVersion, typename Descriptor>
int StartSeldom(void* context, void** handle, const Descriptor& descriptor, Tracker& tracker);

// Starts an event whose type is kType or one of kMoreTypes, compared in this order. The last type
// is not compared.
template <int kApiVersion, uint64_t kType, uint64_t... kMoreTypes, typename Descriptor>
[[gnu::always_inline]] inline int StartOneOf(void* context, void** handle,
                                             const Descriptor& descriptor, Tracker& tracker) {
  if constexpr (sizeof...(kMoreTypes) != 0) {
    if (descriptor.type != kType) {
      return StartOneOf<kApiVersion, kMoreTypes...>(context, handle, descriptor, tracker);
    }
  }
  if constexpr (kType == abi::kEventGroup) {  // comes unrequested
    *handle = nullptr;
    return abi::kSuccess;
  } else if constexpr (kType == kEventOther) {
    return StartSeldom<kApiVersion>(context, handle, descriptor, tracker);
  } else if constexpr (kType == abi::kEventGroupApi || kType == abi::kEventCollApi ||
                       kType == abi::kEventP2pApi || kType == abi::kEventKernelLaunch ||
                       kType == abi::kEventColl || kType == abi::kEventP2p ||
                       kType == abi::kEventKernelCh) {
    return StartUsual<kApiVersion, kType>(context, handle, descriptor, tracker);
  } else {
    return StartOfType<kApiVersion, kType>(context, handle, descriptor, tracker);
  }
}

template <int kApiVersion, typename Descriptor>
[[gnu::used, gnu::noinline]] int StartSeldom(void* context, void** handle,
                                             const Descriptor& descriptor, Tracker& tracker) {
  return StartOneOf<kApiVersion, abi::kEventKernelCh, abi::kEventP2pApi, abi::kEventP2p,
                    abi::kEventProxyOp, abi::kEventProxyStep, 0>(context, handle, descriptor,
                                                                 tracker);
}

template <int kApiVersion, typename Descriptor>
int StartEventV5(void* context, void** handle, Descriptor* descriptor);

// Handles a startEvent in which tracker, descriptor or handle is missing.
template <int kApiVersion, typename Descriptor>
[[gnu::cold, gnu::noinline]] int StartWithoutAll(void* context, void** handle,
                                                 Descriptor* descriptor) {
  return StartEvent(handle, descriptor, [&](Tracker& /*there is no handle*/) {
    void* ticket;
    StartEventV5<kApiVersion>(context, &ticket, descriptor);
    return TicketOf(ticket);
  });
}

template <int kApiVersion, typename Descriptor>
[[gnu::hot]] int StartEventV5(void* context, void** handle, Descriptor* descriptor) {
  Tracker* const tracker = Runtime::tracker();
  if (__builtin_expect(tracker == nullptr, 0) || __builtin_expect(descriptor == nullptr, 0) ||
      __builtin_expect(handle == nullptr, 0)) {
    return StartWithoutAll<kApiVersion>(context, handle, descriptor);
  }
  // In the order of an operation's events.
  return StartOneOf<kApiVersion, abi::kEventGroupApi, abi::kEventCollApi, abi::kEventKernelLaunch,
                    abi::kEventGroup, abi::kEventColl, kEventOther>(context, handle, *descriptor,
                                                                    *tracker);
}

}  // namespace nccl_pulse

#endif  // PLUGIN_ADAPTER_ADAPTER_V5_H_
