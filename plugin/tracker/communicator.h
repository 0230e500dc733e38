// Communicator is the plugin's private data of one communicator: identity, record and parts.
//
// Readers see only the record in the segment. Later communicators reuse a place of the table
// (CommunicatorTable). A place's parts are allocated at its first use and never unmapped, so an
// event after finalize finds a closed slot and does not fault.
//
// Thread: each field names its writer. Cost: a lane's claim, see metrics/lane_writer.h.
#ifndef PLUGIN_TRACKER_COMMUNICATOR_H_
#define PLUGIN_TRACKER_COMMUNICATOR_H_

#include <atomic>
#include <cstdint>

#include "metrics/atomic_cell.h"
#include "metrics/lane_writer.h"
#include "metrics/record_writer.h"
#include "metrics/segment.h"
#include "plugin/tracker/awaited_ends.h"
#include "plugin/tracker/inflight_operations.h"
#include "plugin/tracker/launch_poller.h"
#include "plugin/tracker/operation_handles.h"
#include "plugin/tracker/operation_slot.h"
#include "plugin/tracker/unreported_calls.h"

namespace nccl_pulse {

struct CommunicatorParts;

// ValidContext is the ticket of a place's communicator; 0: finalized, or never used.
class ValidContext : public Ordered<uint64_t> {
 public:
  // Makes further events with this ticket stale. Release and acquire: the settling that follows is
  // not reordered before it.
  void Close() { cell_.exchange(0, std::memory_order_acq_rel); }
};

struct alignas(64) Communicator {
  // True if callbacks may come for this communicator. Acquire: sees it as init made it.
  bool is_live() const { return context.acquire() != 0; }
  // Claims a lane. The writer compares the generation with the record while it holds the lane.
  LaneWriter ClaimLane(Segment& segment, LaneRole role) const {
    return LaneWriter(segment, *record, record_generation.load(), role);
  }
  RecordWriter Writer(Segment& segment) const { return RecordWriter(segment, *record); }
  // Notes that calls were captured into a CUDA graph.
  void MarkCaptured(Segment& segment) const { Writer(segment).NoteCaptured(); }

  ValidContext context;
  Ordered<uint32_t> record_generation;
  uint32_t index;  // of this place and of its record
  CommunicatorRecord* record;
  Ordered<CommunicatorParts*> parts;  // null until first used
  uint64_t first_ticket;              // Ticket::OfOperation
  Relaxed<uint64_t> sampling_seed;    // Sampler::SeedOf
  Relaxed<int32_t> rank, nranks;
  AwaitedEnds awaited_ends;  // of groups
  OperationHandles handles;
  // ---- next cache line: callbacks of an operation read only the fields above
  alignas(64) InflightOperations inflight;  // background thread, like the next two
  UnlaunchedCalls standing;
  LaunchPoller watch;
  uint32_t context_generation;   // init lock
  uint64_t recycle_after_ns;     // init lock; a lane stayed busy at the last attempt
  Relaxed<bool> identity_known;  // v1 to v3 learn it with the first operation
};

}  // namespace nccl_pulse

#endif  // PLUGIN_TRACKER_COMMUNICATOR_H_
