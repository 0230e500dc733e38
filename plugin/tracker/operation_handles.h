// OperationHandles decides whether the operations of a communicator get handles.
//
// A handle identifies an operation to its child events. It costs a slot of the OperationRing (a
// compare-and-swap) and one more callback, the operation's stop. Without kernel timing, only
// network operations (ProxyOp) are child events. Within one node, they exist only if neither NVLink
// nor shared memory connects two ranks of the communicator. So the first kFirst operations get
// handles. If none of them has a ProxyOp, later ones get no handle. The first ProxyOp brings
// handles back for good. Operations in progress at that moment have no completion time.
//
// Thread: Begin init; Note the thread that reports operations; SeeChild any. Relaxed: Note and
// SeeChild may overwrite each other's store, which delays the change by one event. Cost: a load.
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
  // Counts a handle that was given.
  void Note() {
    const uint32_t left = left_.load();
    if (__builtin_expect(left - 1 < kFirst, 0)) left_.store(left - 1);
  }
  // Call when an operation of the communicator has a child. The load before the store keeps the
  // cache line shared.
  void SeeChild() {
    if (__builtin_expect(left_.load() != kAlways, 0)) left_.store(kAlways);
  }

 private:
  static constexpr uint32_t kAlways = UINT32_MAX;

  Relaxed<uint32_t> left_;
};

}  // namespace nccl_pulse

#endif  // PLUGIN_TRACKER_OPERATION_HANDLES_H_
