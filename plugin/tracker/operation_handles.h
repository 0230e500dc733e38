// Whether the operations of a communicator get handles.
//
// A handle names an operation to its children. It costs a place in the ring, which takes a
// compare-and-swap, and one callback more, the operation's stop. Network traffic alone has children
// that end. A communicator within one node has network traffic only where neither NVLink nor shared
// memory connects two of its ranks. So its first operations get handles. When none of them had a
// ProxyOp, the later ones get no handle. The first ProxyOp brings the handles back for good; of the
// operations that were under way then, none has a completion time.
//
// Thread: Begin init; Note the thread that reports operations; SeeChild any. Relaxed: a count that
// gets lost, or a child that is overlooked beside a count, delays the change by one event. Cost: a
// load.
#ifndef PLUGIN_TRACKER_OPERATION_HANDLES_H_
#define PLUGIN_TRACKER_OPERATION_HANDLES_H_

#include <cstdint>

#include "metrics/atomic_cell.h"

namespace nccl_pulse {

class OperationHandles {
 public:
  // ProxyOps come on another thread, so some of these may be reported before the first ProxyOp.
  static constexpr uint32_t kFirst = 1024;

  // `nnodes` 0: not known.
  void Begin(int nnodes) { left_.store(nnodes == 1 ? kFirst : kAlways); }
  bool are_given() const { return left_.load() != 0; }
  // One was given.
  void Note() {
    const uint32_t left = left_.load();
    if (__builtin_expect(left - 1 < kFirst, 0)) left_.store(left - 1);
  }
  // An operation of the communicator has a child. Looking before storing keeps the cache line
  // shared.
  void SeeChild() {
    if (__builtin_expect(left_.load() != kAlways, 0)) left_.store(kAlways);
  }

 private:
  static constexpr uint32_t kAlways = UINT32_MAX;

  Relaxed<uint32_t> left_;
};

}  // namespace nccl_pulse

#endif  // PLUGIN_TRACKER_OPERATION_HANDLES_H_
