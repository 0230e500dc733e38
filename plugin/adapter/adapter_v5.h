// API v5 and v6: v6 is v5 with copy-engine collectives.
#ifndef PLUGIN_ADAPTER_ADAPTER_V5_H_
#define PLUGIN_ADAPTER_ADAPTER_V5_H_

#include "plugin/adapter/adapter_v4.h"

namespace nccl_pulse {

// `other` gets the types that v5 does not have.
template <typename Descriptor, typename Other>
int StartEventV5(void* context, void** handle, const Descriptor* descriptor, Other other) {
  return StartEvent(handle, descriptor, [&](Tracker& tracker) -> uint64_t {
    switch (descriptor->type) {
      case abi::kEventGroupApi:
        return tracker.StartGroup(TicketOf(context), descriptor->groupApi.graphCaptured,
                                  descriptor->groupApi.groupDepth);
      case abi::kEventCollApi: {
        const auto& call = descriptor->collApi;
        return tracker.StartCall(TicketOf(context),
                                 {call.func, call.datatype, call.count, call.graphCaptured,
                                  TicketOf(descriptor->parentObj), call.stream});
      }
      case abi::kEventP2pApi: {
        const auto& call = descriptor->p2pApi;
        return tracker.StartCall(TicketOf(context),
                                 {call.func, call.datatype, call.count, call.graphCaptured,
                                  TicketOf(descriptor->parentObj), call.stream});
      }
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
