// The operations of a communicator are counted here, as its calls are in CallKinds: a job's
// operations have few kinds, and the cells of each are found in one cache line.
//
// A kind is known by the addresses of its strings, and by the fate of its launch, which is part of
// the series' key.
//
// Thread: the launching thread, where NCCL reports all operations of launches without ProxyOps
// (src/enqueue.cc, ncclLaunchPrepare: others may come from a host callback). Learn: also that one.
// The fields are atomics: what two of them make at once costs accuracy alone. Cost: a
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
  Relaxed<uint8_t> sort;        // SortOf
  Relaxed<uint8_t> op;          // NameId
  Relaxed<CounterPair*> cells;  // in lane kLaunch

  // LaunchFate, and whether it is a collective: NCCL may leave the strings out.
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
  // Of no operation: no string has that address.
  void Forget() {
    func.store(reinterpret_cast<const char*>(uintptr_t{1}));  // NOLINT(performance-no-int-to-ptr)
  }
};

class OperationKinds {
 public:
  void Reset() {
    for (OperationKind& kind : kinds_) kind.Forget();
  }
  // Where that operation's kind stands, or another one that wants the same place.
  OperationKind& PlaceOf(const OperationEvent& event) {
    // 32 bits: as CallKinds.
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
