// HiddenOperations learns for which operations of a communicator NCCL reports no launches. Their
// launches are called hidden. The end of the group then takes the place of the launch
// (unreported_launch.cc).
//
// Each operation (AllReduce, ...) has a state:
//
//   state       event                                               next
//   unknown     a call, alone in its group, has no launch           suspected: it may have failed
//   suspected   a call of the suspected size has a launch           unknown
//   suspected   another call without a launch, of another size      suspected, and Suspect returns
//               than the operation's last reported launch;          true: this launch is hidden
//               launches were reported in between
//   suspected   NoteFollowed: a hidden launch was counted at the    followed, for good: all missing
//               end of its group                                    launches are hidden
//
// The size matters, because other sizes may use another kernel: NCCL hides symmetric-memory
// kernels, but not other kernels of the same operation.
//
// Thread: the calling thread. Cost: a few loads, on two cache lines.
#ifndef PLUGIN_TRACKER_HIDDEN_OPERATIONS_H_
#define PLUGIN_TRACKER_HIDDEN_OPERATIONS_H_

#include <cstdint>

#include "metrics/atomic_cell.h"
#include "metrics/segment_layout.h"

namespace nccl_pulse {

// `row`: index of the operation, from OperationRowOf.
class HiddenOperations {
 public:
  void Reset() {
    followed_.store(0);
    for (Suspicion& each : suspected_) each.Reset();
  }

  bool IsFollowed(uint32_t row) const { return (followed_.load() & Bit(row)) != 0; }
  void NoteFollowed(uint32_t row) { followed_.store(followed_.load() | Bit(row)); }

  // Notes a reported launch of a call with `bytes`.
  void Acquit(uint32_t row, uint64_t bytes) {
    Suspicion& suspected = suspected_[row];
    if (suspected.bytes.load() == bytes) suspected.is_active.store(false);
    suspected.reported_bytes.store(bytes);
  }
  // Notes a call, alone in its group, without a launch. `launches`: the communicator's launches
  // reported so far. Returns true if the launch is hidden; false if the call may have failed.
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
  Relaxed<uint32_t> followed_;  // bit set of rows
  Suspicion suspected_[kOperationRows];
};

}  // namespace nccl_pulse

#endif  // PLUGIN_TRACKER_HIDDEN_OPERATIONS_H_
