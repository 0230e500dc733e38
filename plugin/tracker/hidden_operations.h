// HiddenOperations learns which operations of a communicator have launches that NCCL does not
// report, so that the end of a group must replace the launch (unreported_launch.cc).
//
//   state       event                                        next
//   unknown     it is alone in its group without a launch    suspected: it may have failed
//   suspected   its launch is reported, in the same size     unknown
//               (a second try)
//   suspected   one of it again, in a size that had no       hidden
//               launch the last time; other launches were
//               reported meanwhile
//   hidden      a call of it was followed by its group's     followed, for good
//               end, and counted
//
// In another size it may be another kernel: those of symmetric memory are hidden, others of the
// same operation are not.
//
// Thread: the one that makes the calls. Cost: two loads, on two cache lines.
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

  // A launch of it was reported.
  void Acquit(uint32_t row, uint64_t bytes) {
    Suspicion& suspected = suspected_[row];
    if (suspected.bytes.load() == bytes) suspected.stands.store(false);
    suspected.reported_bytes.store(bytes);
  }
  // One alone had no launch. `launches`: how many of the communicator's were reported so far. True
  // if it is known to be hidden.
  bool Suspect(uint32_t row, uint64_t bytes, uint64_t launches) {
    if (IsFollowed(row)) return true;
    Suspicion& suspected = suspected_[row];
    if (suspected.stands.load()) {
      // One whose size had a launch the last time has failed rather.
      return launches != suspected.launches.load() && bytes != suspected.reported_bytes.load();
    }
    suspected.bytes.store(bytes);
    suspected.launches.store(launches);
    suspected.stands.store(true);
    return false;
  }

 private:
  static uint32_t Bit(uint32_t row) { return 1u << row; }

  struct Suspicion {
    void Reset() {
      stands.store(false);
      reported_bytes.store(UINT64_MAX);
    }
    Relaxed<bool> stands;
    Relaxed<uint64_t> bytes, launches;  // of the call; that had been reported
    Relaxed<uint64_t> reported_bytes;   // of the last call that had a launch
  };
  Relaxed<uint32_t> followed_;
  Suspicion suspected_[kOperationRows];
};

}  // namespace nccl_pulse

#endif  // PLUGIN_TRACKER_HIDDEN_OPERATIONS_H_
