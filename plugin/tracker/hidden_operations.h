// HiddenOperations learns for which operations of a communicator NCCL reports no launches. Their
// calls are then counted at the end of the group (unreported_launch.cc).
//
//   state       event                                               next
//   unknown     a call, alone in its group, has no launch           suspected (it may have failed)
//   suspected   a call of the suspected size has a launch           unknown
//   suspected   another call without a launch, after other          hidden: Suspect returns true
//               launches were reported; the operation's last
//               reported launch had another size
//   hidden      NoteFollowed: the call was counted at the end of    followed, for good: each later
//               its group                                           call without a launch is hidden
//
// The size matters, because other sizes may use another kernel: NCCL hides symmetric-memory
// kernels, but not other kernels of the same operation.
//
// Thread: the calling thread. Cost: two loads, on two cache lines.
#ifndef PLUGIN_TRACKER_HIDDEN_OPERATIONS_H_
#define PLUGIN_TRACKER_HIDDEN_OPERATIONS_H_

#include <cstdint>

#include "metrics/atomic_cell.h"
#include "metrics/segment_layout.h"

namespace nccl_pulse {

// `row`: OperationRowOf the operation.
class HiddenOperations {
 public:
  void Reset() {
    followed_.store(0);
    for (Suspicion& each : suspected_) each.Reset();
  }

  bool IsFollowed(uint32_t row) const { return (followed_.load() & Bit(row)) != 0; }
  void NoteFollowed(uint32_t row) { followed_.store(followed_.load() | Bit(row)); }

  // Notes a reported launch.
  void Acquit(uint32_t row, uint64_t bytes) {
    Suspicion& suspected = suspected_[row];
    if (suspected.bytes.load() == bytes) suspected.is_active.store(false);
    suspected.reported_bytes.store(bytes);
  }
  // Notes a call, alone in its group, without a launch. `launches`: the communicator's launches
  // reported so far. Returns true if the operation is known to have hidden launches.
  bool Suspect(uint32_t row, uint64_t bytes, uint64_t launches) {
    if (IsFollowed(row)) return true;
    Suspicion& suspected = suspected_[row];
    if (suspected.is_active.load()) {
      // If this size had a launch the last time, the call has more likely failed.
      return launches != suspected.launches.load() && bytes != suspected.reported_bytes.load();
    }
    suspected.bytes.store(bytes);
    suspected.launches.store(launches);
    suspected.is_active.store(true);
    return false;
  }

 private:
  static uint32_t Bit(uint32_t row) { return 1u << row; }

  struct Suspicion {
    void Reset() {
      is_active.store(false);
      reported_bytes.store(UINT64_MAX);
    }
    Relaxed<bool> is_active;
    Relaxed<uint64_t> bytes,           // size of the suspected call
        launches;                      // launches reported before it
    Relaxed<uint64_t> reported_bytes;  // size of the last call with a launch
  };
  Relaxed<uint32_t> followed_;
  Suspicion suspected_[kOperationRows];
};

}  // namespace nccl_pulse

#endif  // PLUGIN_TRACKER_HIDDEN_OPERATIONS_H_
