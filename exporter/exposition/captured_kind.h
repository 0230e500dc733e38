// Returns which operations the CUDA graphs of a communicator can have replayed.
//
// NCCL's own counter has one number for all collectives (docs/work-counters.md). Whatever was captured is
// among the communicator's calls. If all of that is one operation, of one size class, each replayed collective
// is one of these, whichever graphs were replayed.
//
// Thread: any, no state. Points into the snapshot.
#ifndef EXPORTER_EXPOSITION_CAPTURED_KIND_H_
#define EXPORTER_EXPOSITION_CAPTURED_KIND_H_

#include <string_view>

#include "metrics/snapshot.h"

namespace nccl_pulse {

struct CapturedKind {
  std::string_view op;  // empty: several
  int size_class = -1;  // negative: several, or several operations

  bool has_size() const { return size_class >= 0; }
};

CapturedKind CapturedKindOf(const CommunicatorSnapshot& communicator);

}  // namespace nccl_pulse

#endif  // EXPORTER_EXPOSITION_CAPTURED_KIND_H_
