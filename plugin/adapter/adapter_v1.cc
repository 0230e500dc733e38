// NCCL 2.23. Functions, data types, algorithms and protocols are numbers in this version.
#include <iterator>

#include "plugin/abi/profiler_v1.h"
#include "plugin/adapter/adapter_v3.h"

namespace nccl_pulse {
namespace {

using abi::v1::Descriptor;

template <size_t N>
const char* NameOf(const char* const (&names)[N], uint8_t number) {
  return number < N ? names[number] : "Unknown";
}

int InitV1(void** context, int* mask) { return InitUnnamed(1, context, mask); }

int StartV1(void* context, void** handle, Descriptor* descriptor) {
  return StartEvent(handle, descriptor, [&](Tracker& tracker) -> uint64_t {
    switch (descriptor->type) {
      case abi::kEventColl: {
        OperationEvent event = CollectiveOf(*descriptor);
        event.func = NameOf(abi::kFunctionNames, descriptor->coll.func);
        event.datatype = NameOf(abi::kDatatypeNames, descriptor->coll.datatype);
        event.algo = NameOf(abi::kAlgorithmNames, descriptor->coll.algo);
        event.proto = NameOf(abi::kProtocolNames, descriptor->coll.proto);
        return tracker.StartOperation(TicketOf(context), event);
      }
      case abi::kEventP2p: {
        OperationEvent event = PointToPointOf(*descriptor);
        event.func = NameOf(abi::kFunctionNames, descriptor->p2p.func);
        event.datatype = NameOf(abi::kDatatypeNames, descriptor->p2p.datatype);
        return tracker.StartOperation(TicketOf(context), event);
      }
      case abi::kEventProxyOp:
        return StartProxyOp(tracker, context, *descriptor);
      default:
        return PassOver(tracker, descriptor->type, 1);
    }
  });
}

int RecordV1(void* handle, int state, abi::v1::StateArgs* /*args*/) {
  return RecordStateWithoutTimes(handle, state);
}

}  // namespace
}  // namespace nccl_pulse

extern "C" {
NCCL_PULSE_EXPORT nccl_pulse::Exported<nccl_pulse::abi::v1::Profiler> ncclProfiler_v1 = {
    {"Pulse", nccl_pulse::InitV1, nccl_pulse::StartV1, nccl_pulse::StopEventV1,
     nccl_pulse::RecordV1, nccl_pulse::FinalizeCommunicator}};
}  // extern "C"
