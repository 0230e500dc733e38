// OperationKinds caches the cells that count an operation, as CallKinds does for calls. A job's
// operations have few kinds, and the cells of each kind are found in one cache line.
//
// The key is the addresses of the operation's strings, and the fate of its launch: timed, or why
// not (LaunchFate). The fate is also part of the key of the counted series.
//
// Thread: the launching thread, on which NCCL reports an operation whose launch has no ProxyOps
// (src/enqueue.cc, ncclLaunchPrepare). Operations with ProxyOps may be reported on CUDA's
// host-callback thread. The fields are atomics, so simultaneous writes only cost accuracy. Cost: a
// multiplication, one cache line.
#ifndef PLUGIN_TRACKER_OPERATION_KINDS_H_
#define PLUGIN_TRACKER_OPERATION_KINDS_H_

#include <cstdint>

#include "metrics/atomic_cell.h"
#include "metrics/name_table.h"
#include "metrics/segment_layout.h"
#include "plugin/tracker/events.h"

namespace nccl_pulse {

struct alignas(64) OperationKind {
  Relaxed<const char*> func, algo, proto;
  Relaxed<uint8_t> sort;        // fate, and whether it is a collective: see SortOf
  Relaxed<uint8_t> op;          // NameId
  Relaxed<CounterPair*> cells;  // in the record's lane for launches

  // Returns the launch's fate, with bit 7 set for a collective: NCCL may omit the strings, which
  // otherwise tell collectives from Sends and Recvs.
  static uint8_t SortOf(const OperationEvent& event, uint8_t launch_fate) {
    return static_cast<uint8_t>(launch_fate | (event.is_collective ? 0x80 : 0));
  }
  bool Is(const OperationEvent& event, uint8_t launch_fate) const {
    return func.load() == event.func && algo.load() == event.algo && proto.load() == event.proto &&
           sort.load() == SortOf(event, launch_fate);
  }
  void Learn(const OperationEvent& event, uint8_t launch_fate, uint8_t op_id, CounterPair* found) {
    Forget();
    if (found == nullptr) return;
    algo.store(event.algo);
    proto.store(event.proto);
    sort.store(SortOf(event, launch_fate));
    op.store(op_id);
    cells.store(found);
    func.store(event.func);
  }
  // Makes the kind match no operation: no string has this address.
  void Forget() {
    func.store(reinterpret_cast<const char*>(uintptr_t{1}));  // NOLINT(performance-no-int-to-ptr)
  }
};

class OperationKinds {
 public:
  void Reset() {
    for (OperationKind& kind : kinds_) kind.Forget();
  }
  // Returns the entry for the operation's kind. It may hold another kind: check with Is.
  OperationKind& SlotOf(const OperationEvent& event) {
    // 32-bit arithmetic makes the code shorter.
    const auto bits = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(event.func) +
                                            reinterpret_cast<uintptr_t>(event.proto));
    return kinds_[bits * 0x9e3779b1U >> (32 - kBits)];
  }

 private:
  static constexpr int kBits = 4;

  OperationKind kinds_[1 << kBits];
};

}  // namespace nccl_pulse

#endif  // PLUGIN_TRACKER_OPERATION_KINDS_H_
