// What is known of each operation on one communicator: whether NCCL hides its launches, so that the
// end of a group has to take a launch's place (unreported_launch.cc).
//
//   in          comes                                        then
//   unknown     it is alone in its group without a launch    suspected: it may have failed
//   suspected   its launch is reported (a second try)        unknown
//   suspected   the same again, and other launches were      hidden
//               reported meanwhile
//   hidden      a call of it was followed by its group's     followed, for good
//               end, and counted
//
// Thread: the one that makes the calls. Cost: two loads, on one cache line.
#ifndef PLUGIN_TRACKER_HIDDEN_OPERATIONS_H_
#define PLUGIN_TRACKER_HIDDEN_OPERATIONS_H_

#include <cstdint>

#include "metrics/atomic_cell.h"

namespace nccl_pulse {

// `row`: OperationRowOf the operation.
class HiddenOperations {
 public:
  void Reset() {
    followed_.store(0);
    suspected_.store(0);
  }

  bool IsFollowed(uint32_t row) const { return (followed_.load() & Bit(row)) != 0; }
  void NoteFollowed(uint32_t row) { followed_.store(followed_.load() | Bit(row)); }

  // A launch of it was reported.
  void Acquit(uint32_t row) { suspected_.store(suspected_.load() & ~Bit(row)); }
  // One alone had no launch. `launches`: how many of the communicator's were reported so far. True if
  // it is known to be hidden.
  bool Suspect(uint32_t row, uint64_t launches) {
    if (IsFollowed(row)) return true;
    if ((suspected_.load() & Bit(row)) == 0) {
      suspected_.store(suspected_.load() | Bit(row));
      suspected_at_.store(launches);
      return false;
    }
    return launches != suspected_at_.load();
  }

 private:
  static uint32_t Bit(uint32_t row) { return 1u << row; }

  Relaxed<uint32_t> followed_;
  Relaxed<uint32_t> suspected_;
  Relaxed<uint64_t> suspected_at_;  // launches that were reported, when one was suspected last
};

}  // namespace nccl_pulse

#endif  // PLUGIN_TRACKER_HIDDEN_OPERATIONS_H_
