#include "bench/replay/reduction.h"

#include <cstddef>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "plugin/abi/common.h"

namespace nccl_pulse {
namespace {

constexpr uint32_t kCe = abi::kEventCeColl | abi::kEventCeSync | abi::kEventCeBatch;
// Types below a Coll or P2p event. Each needs its parent.
constexpr uint32_t kBelowOperation =
    abi::kEventProxyOp | abi::kEventProxyStep | abi::kEventKernelCh | abi::kEventNetPlugin;

bool StateKnown(int state, int version) {
  if (version >= 5) return true;
  if (version == 4) return state < abi::kStateGroupStartApiStop;
  return state >= abi::kStateProxyStepSendGpuWait && state <= abi::kStateProxyCtrlAppendEnd;
}

bool IsOperation(const TraceEvent& event) {
  return event.callback == Callback::kStart &&
         (event.type == abi::kEventColl || event.type == abi::kEventP2p);
}

// Facts that AddCaptureCallbacks keeps about a handle of the trace.
struct HandleInfo {
  uint32_t start = UINT32_MAX;       // index of the start event
  uint32_t stop = UINT32_MAX;        // index of the first stop event
  std::vector<uint32_t> operations;  // Group: its Coll and P2p handles
  bool network = false;              // Group: an operation of it has proxy operations
  bool replayed = false;             // Group: its operations were captured
};

std::vector<HandleInfo> Survey(const Trace& trace) {
  std::vector<HandleInfo> handles(trace.handles);
  const auto start_of = [&](uint32_t handle) -> const TraceEvent& {
    return trace.events[handles[handle].start];
  };
  for (uint32_t i = 0; i < trace.events.size(); ++i) {
    const TraceEvent& event = trace.events[i];
    if (event.callback == Callback::kStop && handles[event.handle].stop == UINT32_MAX) {
      handles[event.handle].stop = i;
    }
    if (event.callback != Callback::kStart) continue;
    handles[event.handle].start = i;
    if (IsOperation(event) && event.operation.parent_group != 0) {
      HandleInfo& group = handles[event.operation.parent_group];
      group.operations.push_back(event.handle);
      if (event.parent != 0 && start_of(event.parent).call.captured) group.replayed = true;
    }
    if (event.type == abi::kEventProxyOp && event.parent != 0 &&
        IsOperation(start_of(event.parent))) {
      handles[start_of(event.parent).operation.parent_group].network = true;
    }
  }
  return handles;
}

}  // namespace

uint32_t NeededBits(uint32_t type) {
  switch (type) {
    case abi::kEventGroupApi:
      return ~abi::kEventProxyCtrl;
    case abi::kEventCollApi:
      return abi::kEventCollApi | abi::kEventColl | kBelowOperation | kCe;
    case abi::kEventP2pApi:
      return abi::kEventP2pApi | abi::kEventP2p | kBelowOperation;
    case abi::kEventGroup:
      return abi::kEventGroup | abi::kEventColl | abi::kEventP2p | kBelowOperation;
    case abi::kEventColl:
    case abi::kEventP2p:
      return type | kBelowOperation;
    case abi::kEventProxyOp:
      return abi::kEventProxyOp | abi::kEventProxyStep | abi::kEventNetPlugin;
    case abi::kEventProxyStep:
      return abi::kEventProxyStep | abi::kEventNetPlugin;
    default:
      return type;
  }
}

bool Delivered(const TraceEvent& event, uint32_t mask, int version) {
  if (event.callback == Callback::kInit || event.callback == Callback::kFinalize) return true;
  const bool kernel_ch = (mask & abi::kEventKernelCh) != 0;
  if (event.condition == Condition::kOnlyWithKernelCh && !kernel_ch) return false;
  if (event.condition == Condition::kOnlyWithoutKernelCh && kernel_ch) return false;
  if ((event.type & abi::EventsOfVersion(version)) == 0) return false;
  if ((mask & NeededBits(event.type)) == 0) return false;
  return event.callback != Callback::kState || StateKnown(event.state.state, version);
}

void AddCaptureCallbacks(Trace& trace) {
  std::vector<HandleInfo> handles = Survey(trace);

  // Callbacks of the capture, by the event before which they are inserted.
  std::map<uint32_t, std::vector<TraceEvent>> insertions;
  std::vector<bool> inserted(handles.size(), false);  // by API call: its first replay has been used
  const auto mark = [&](uint32_t handle) {
    for (uint32_t i : {handles[handle].start, handles[handle].stop}) {
      if (i != UINT32_MAX) trace.events[i].condition = Condition::kOnlyWithKernelCh;
    }
  };
  for (uint32_t g = 1; g < handles.size(); ++g) {
    const HandleInfo& group = handles[g];
    if (!group.replayed || group.network) continue;
    mark(g);
    for (uint32_t operation : group.operations) mark(operation);

    const uint32_t call = trace.events[handles[group.operations.front()].start].parent;
    if (inserted[call]) continue;
    for (uint32_t operation : group.operations) {
      inserted[trace.events[handles[operation].start].parent] = true;
    }
    const uint32_t group_call = trace.events[handles[call].start].parent;
    const uint32_t before = group_call == 0 ? UINT32_MAX : handles[group_call].stop;
    if (before == UINT32_MAX) continue;  // the recording ended during the capture

    std::vector<TraceEvent>& at_capture = insertions[before];
    const auto add = [&](TraceEvent event, Callback callback, uint32_t handle) -> TraceEvent& {
      event.callback = callback;
      event.handle = handle;
      event.t_ns = trace.events[before].t_ns;
      event.thread = trace.events[before].thread;
      event.condition = Condition::kOnlyWithoutKernelCh;
      at_capture.push_back(event);
      return at_capture.back();
    };
    const TraceEvent& group_start = trace.events[group.start];
    const uint32_t new_group = trace.handles++;
    add(group_start, Callback::kStart, new_group);
    const uint32_t first_operation = trace.handles;
    for (uint32_t operation : group.operations) {
      add(trace.events[handles[operation].start], Callback::kStart, trace.handles++)
          .operation.parent_group = new_group;
    }
    for (size_t i = 0; i < group.operations.size(); ++i) {
      add(trace.events[handles[group.operations[i]].start], Callback::kStop,
          first_operation + static_cast<uint32_t>(i));
    }
    add(group_start, Callback::kStop, new_group);
  }
  if (insertions.empty()) return;

  std::vector<TraceEvent> merged;
  merged.reserve(trace.events.size() + 4 * insertions.size());
  for (uint32_t i = 0; i < trace.events.size(); ++i) {
    const auto it = insertions.find(i);
    if (it != insertions.end()) merged.insert(merged.end(), it->second.begin(), it->second.end());
    merged.push_back(trace.events[i]);
  }
  trace.events = std::move(merged);

  // Sequence numbers without counting captured operations.
  struct Counter {
    uint64_t next = 0;
    uint64_t captured = 0;  // recorded numbers of captured operations so far
  };
  std::map<std::pair<uint32_t, std::string_view>, Counter> counters;
  for (TraceEvent& event : trace.events) {
    if (event.callback != Callback::kStart || event.type != abi::kEventColl) continue;
    Counter& counter = counters[{event.context, event.operation.func}];
    uint64_t& number = event.operation.seq_number_without_kernelch;
    if (event.condition == Condition::kOnlyWithoutKernelCh) {
      number = counter.next;
    } else if (event.condition == Condition::kOnlyWithKernelCh) {
      ++counter.captured;
    } else {
      number = event.operation.seq_number - counter.captured;
      counter.next = number + 1;
    }
  }
}

}  // namespace nccl_pulse
