// Communicator is the plugin's private data of one communicator: identity, record and parts.
//
// Other processes see only the record in the shared segment. A Communicator is a place of
// CommunicatorTable, reused by later communicators. Its parts (CommunicatorParts) are allocated at
// the first use of the place and never unmapped. So an event after finalize finds a closed place,
// and does not fault.
//
// Thread: init writes the fields, unless they or their types say otherwise. Cost: a lane's claim,
// see metrics/lane_writer.h.
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
  // Makes further events with this ticket stale. Release and acquire: the caller next counts the
  // open operations (settling.h), and that is not reordered before the exchange.
  void Close() { cell_.exchange(0, std::memory_order_acq_rel); }
};

struct alignas(64) Communicator {
  // True if callbacks may come for this communicator. Acquire: sees its fields as init wrote them.
  bool is_live() const { return context.acquire() != 0; }
  // Claims a lane: a set of the record's counters, with one writer at a time. The LaneWriter
  // compares the generation with the record's while it holds the lane.
  LaneWriter ClaimLane(Segment& segment, LaneRole role) const {
    return LaneWriter(segment, *record, record_generation.load(), role);
  }
  RecordWriter Writer(Segment& segment) const { return RecordWriter(segment, *record); }
  // Notes that calls were captured into a CUDA graph.
  void MarkCaptured(Segment& segment) const { Writer(segment).NoteCaptured(); }

  ValidContext context;
  Ordered<uint32_t> record_generation;  // of `record`, while it is this communicator's
  uint32_t index;  // of this place in the table, and of its record in the segment
  CommunicatorRecord* record;
  Ordered<CommunicatorParts*> parts;  // null until first used
  uint64_t first_ticket;              // the bits that all its operations' tickets share (ticket.h)
  Relaxed<uint64_t> sampling_seed;    // its part of the sampling hash (Sampler::SeedOf)
  Relaxed<int32_t> rank, nranks;
  AwaitedEnds awaited_ends;
  OperationHandles handles;
  // ---- next cache line: callbacks of an operation read only the fields above
  // The background thread alone uses `inflight`, `standing` and `watch`.
  alignas(64) InflightOperations inflight;
  UnlaunchedCalls standing;
  LaunchPoller watch;
  uint32_t context_generation;   // of the last context's ticket; init lock
  uint64_t recycle_after_ns;     // next attempt, after one that found it in use; init lock
  Relaxed<bool> identity_known;  // API v1 to v3: set by the first operation
};

}  // namespace nccl_pulse

#endif  // PLUGIN_TRACKER_COMMUNICATOR_H_
