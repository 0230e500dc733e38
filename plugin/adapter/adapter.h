// Functions shared by the ABI adapters (adapter_vN.cc), which implement the five functions of each
// version of NCCL's profiler API. They convert arguments to events, and pass these to the Tracker.
// All return success.
//
// Thread: as NCCL calls them, any.
#ifndef PLUGIN_ADAPTER_ADAPTER_H_
#define PLUGIN_ADAPTER_ADAPTER_H_

#include <cstdint>

#include "plugin/abi/common.h"
#include "plugin/runtime/runtime.h"
#include "plugin/tracker/eager_callbacks.h"
#include "plugin/tracker/events.h"

namespace nccl_pulse {

// A ticket is the integer that NCCL gets as a handle or context in place of a pointer (ticket.h).
inline uint64_t TicketOf(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer); }
inline void* PointerOf(uint64_t ticket) {
  return reinterpret_cast<void*>(
      static_cast<uintptr_t>(ticket));  // NOLINT(performance-no-int-to-ptr)
}

inline int InitCommunicator(const InitArguments& arguments, void** context, int* event_mask) {
  Runtime::Init(arguments, context, event_mask);
  return abi::kSuccess;
}

inline int FinalizeCommunicator(void* context) {
  Runtime::Finalize(context);
  return abi::kSuccess;
}

inline int StopEvent(void* handle) {
  if (Tracker* tracker = Runtime::tracker()) tracker->Stop(TicketOf(handle));
  return abi::kSuccess;
}

// Runs `dispatch(tracker)`, which returns the event's ticket (0: none), and stores it in `handle`.
// The handle is always written: NCCL doesn't clear it before the call, and would stop the old one.
template <typename Descriptor, typename Dispatch>
int StartEvent(void** handle, const Descriptor* descriptor, Dispatch dispatch) {
  uint64_t ticket = 0;
  if (Tracker* tracker = Runtime::tracker()) {
    if (descriptor == nullptr) {
      tracker->Ignore(IgnoredReason::kMissingArgument);
    } else {
      ticket = dispatch(*tracker);
    }
  }
  if (handle != nullptr) *handle = PointerOf(ticket);
  return abi::kSuccess;
}

// Handles recordEventState in v4 and later, where `args` has kernelCh.pTimer and
// proxyStep.transSize.
template <typename StateArgs>
int RecordState(void* handle, int state, StateArgs* args) {
  Tracker* tracker = Runtime::tracker();
  if (tracker == nullptr) return abi::kSuccess;
  if (state == abi::kStateKernelChStop) {
    tracker->RecordKernelStop(TicketOf(handle), args != nullptr ? &args->kernelCh.pTimer : nullptr);
  } else if (abi::IsProxyStepState(state)) {
    tracker->RecordStep(TicketOf(handle), state,
                        args != nullptr ? &args->proxyStep.transSize : nullptr);
  } else {
    tracker->RecordState(TicketOf(handle), state);
  }
  return abi::kSuccess;
}

// Handles recordEventState in v1 to v3, whose arguments have neither of these fields.
inline int RecordStateWithoutTimes(void* handle, int state) {
  if (Tracker* tracker = Runtime::tracker()) tracker->RecordState(TicketOf(handle), state);
  return abi::kSuccess;
}

// Handles an event that the plugin does not use, and returns its ticket, normally 0. Group comes
// unrequested (docs/nccl-profiler-api.md#implied-events) and is skipped; other types are counted as
// ignored.
inline uint64_t PassOver(Tracker& tracker, uint64_t type, int api_version) {
  const uint64_t known = abi::EventsOfVersion(api_version);
  if (type == abi::kEventGroup) return api_version < 5 ? tracker.UnusedGroup() : 0;
  const bool single_known_bit = (type & (type - 1)) == 0 && (type & known) != 0;
  tracker.Ignore(single_known_bit ? IgnoredReason::kUnrequestedType : IgnoredReason::kUnknownType);
  return 0;
}

template <typename Descriptor>
uint64_t StartProxyOp(Tracker& tracker, void* context, const Descriptor& descriptor) {
  return tracker.StartProxyOp(TicketOf(context),
                              {TicketOf(descriptor.parentObj), descriptor.proxyOp.pid});
}

// An exported profiler structure, followed by null pointers. Some forks of NCCL, and a proposal for
// NCCL, read one member more than the released structure has; they find null there.
template <typename Profiler>
struct Exported {
  Profiler profiler;
  void* none[16] = {};
};

}  // namespace nccl_pulse

#define NCCL_PULSE_EXPORT __attribute__((visibility("default")))

#endif  // PLUGIN_ADAPTER_ADAPTER_H_
