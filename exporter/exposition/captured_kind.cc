#include "exporter/exposition/captured_kind.h"

namespace nccl_pulse {

CapturedKind CapturedKindOf(const CommunicatorSnapshot& communicator) {
  // Calls beyond the limit of series may be captured, and their kinds are not known.
  if (communicator.overflowed_calls != 0) return {};
  CapturedKind kind;
  bool is_first = true;
  for (const CallCountSnapshot& call : communicator.calls) {
    if (!call.captured || call.calls == 0) continue;
    if (is_first) {
      kind = {call.op, call.size_class};
    } else if (call.op != kind.op) {
      return {};
    } else if (kind.size_class != call.size_class) {
      kind.size_class = -1;
    }
    is_first = false;
  }
  return kind;
}

}  // namespace nccl_pulse
