// CommunicatorParts holds the objects that follow one communicator's calls, launches and
// operations, in one allocation.
//
// Thread: as each part says.
#ifndef PLUGIN_TRACKER_COMMUNICATOR_PARTS_H_
#define PLUGIN_TRACKER_COMMUNICATOR_PARTS_H_

#include <cstddef>
#include <cstdint>

#include "metrics/atomic_cell.h"
#include "metrics/last_calls.h"
#include "metrics/visit.h"
#include "plugin/tracker/call_kinds.h"
#include "plugin/tracker/kernel_channels.h"
#include "plugin/tracker/launch_follower.h"
#include "plugin/tracker/operation_kinds.h"
#include "plugin/tracker/operation_ring.h"
#include "plugin/tracker/unreported_operations.h"

namespace nccl_pulse {

struct TrackedWork;

// For each operation, a packed FirstMove (operation_slot.h): when its first network step moved
// data. Written only for operations whose steps are watched.
using FirstMoves = Relaxed<uint64_t>[kOperationSlots];

// All-zero memory is the initial state. The object is page-aligned.
struct CommunicatorParts {
  // Returns the size with the KernelChannels (kernel timing) or the FirstMoves behind this
  // object.
  static size_t BytesFor(bool kernel_timing);

  OperationRing ring;
  LaunchFollower launches;
  alignas(64) LastCalls last_calls;
  // For the callbacks of calls, launches and reported operations. Each keeps the record from being
  // recycled while its callback runs (metrics/visit.h).
  Visit calling, launching, reporting;
  // NCCL's counter of finished work (work_follower.h); null: not followed. Never reset to null.
  Ordered<TrackedWork*> work;
  // ---- next cache line: each call writes the fields above
  CallKinds call_kinds;
  OperationKinds operation_kinds;
  KernelChannels* channels;  // null without kernel timing
  FirstMoves* first_moves;   // null with kernel timing
  PeerCursor peer_cursor;
  UnreportedOperations unreported;
};
// `ring` ends and `launches` begins on one cache line. Of these two objects, an unsampled launch
// touches only that line and the first line of LaunchFollower's timer.
static_assert(OperationRing::kBytesOnLastLine + LaunchFollower::kBytesOnFirstLine == 64);
static_assert(offsetof(CommunicatorParts, launches) == sizeof(OperationRing));
static_assert(offsetof(CommunicatorParts, call_kinds) ==
              offsetof(CommunicatorParts, last_calls) + 64);

inline size_t CommunicatorParts::BytesFor(bool kernel_timing) {
  return sizeof(CommunicatorParts) + (kernel_timing ? sizeof(KernelChannels) : sizeof(FirstMoves));
}

}  // namespace nccl_pulse

#endif  // PLUGIN_TRACKER_COMMUNICATOR_PARTS_H_
