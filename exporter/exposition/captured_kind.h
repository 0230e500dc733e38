// Returns the operation and size class of a communicator's collectives in CUDA graphs, if all of
// them have the same operation and size class.
//
// NCCL's counter has one number for all collectives (docs/work-counters.md). If all captured calls
// are of one operation and size class, each replayed collective is one of these, whichever graph
// was replayed.
//
// Thread: any, no state. Points into the snapshot.
#ifndef EXPORTER_EXPOSITION_CAPTURED_KIND_H_
#define EXPORTER_EXPOSITION_CAPTURED_KIND_H_

#include <string_view>

#include "metrics/snapshot.h"

namespace nccl_pulse {

struct CapturedKind {
  std::string_view op;  // empty: several operations, or unknown
  int size_class = -1;  // negative: several sizes or operations, or unknown

  bool has_size() const { return size_class >= 0; }
};

CapturedKind CapturedKindOf(const CommunicatorSnapshot& communicator);

}  // namespace nccl_pulse

#endif  // EXPORTER_EXPOSITION_CAPTURED_KIND_H_
