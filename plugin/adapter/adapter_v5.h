// API v5 and v6: v6 is v5 with copy-engine collectives.
#ifndef PLUGIN_ADAPTER_ADAPTER_V5_H_
#define PLUGIN_ADAPTER_ADAPTER_V5_H_

#include "plugin/adapter/adapter_v4.h"

namespace nccl_pulse {

// The tag that the user gave the call; 0: none.
template <typename Call>
auto UserTagOf(const Call& call, int /*preferred*/) -> decltype(call.userTag) {
  return call.userTag;
}
template <typename Call>
uint64_t UserTagOf(const Call& /*call*/, long /*before v7*/) {
  return 0;
}

template <typename Call>
uint64_t StartCall(Tracker& tracker, void* context, const Call& call, const void* parent) {
  const CallEvent event{call.func,          call.datatype,    call.count,
                        call.graphCaptured, TicketOf(parent), call.stream};
  if (const uint64_t user_tag = UserTagOf(call, 0); __builtin_expect(user_tag != 0, 0)) {
    return tracker.StartTaggedCall(TicketOf(context), event, user_tag);
  }
  return tracker.StartCall(TicketOf(context), event);
}

// `other` gets the types that v5 does not have.
template <typename Descriptor, typename Other>
int StartEventV5(void* context, void** handle, const Descriptor* descriptor, Other other) {
  return StartEvent(handle, descriptor, [&](Tracker& tracker) -> uint64_t {
    switch (descriptor->type) {
      case abi::kEventGroupApi:
        // Each call opens a group of its own within the user's (docs/nccl-profiler-api.md#groups).
        return tracker.StartGroup(TicketOf(context), descriptor->groupApi.graphCaptured,
                                  descriptor->groupApi.groupDepth == 1);
      case abi::kEventCollApi:
        return StartCall(tracker, context, descriptor->collApi, descriptor->parentObj);
      case abi::kEventP2pApi:
        return StartCall(tracker, context, descriptor->p2pApi, descriptor->parentObj);
      case abi::kEventKernelLaunch:
        return tracker.StartLaunch(
            TicketOf(context), {descriptor->kernelLaunch.stream, TicketOf(descriptor->parentObj)});
      case abi::kEventColl:
        return StartCollective(tracker, context, *descriptor, false);
      case abi::kEventP2p:
        return StartPointToPoint(tracker, context, *descriptor, false);
      case abi::kEventProxyOp:
        return StartProxyOp(tracker, context, *descriptor);
      case abi::kEventProxyStep:  // its context may be another process'
        return tracker.StartStep(TicketOf(descriptor->parentObj));
      case abi::kEventKernelCh:
        return StartKernelChannel(tracker, context, *descriptor);
      default:
        return other(tracker);
    }
  });
}

}  // namespace nccl_pulse

#endif  // PLUGIN_ADAPTER_ADAPTER_V5_H_
