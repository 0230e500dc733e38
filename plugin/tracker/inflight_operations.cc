#include "plugin/tracker/inflight_operations.h"

#include <algorithm>

#include "plugin/tracker/operation_ring.h"

namespace nccl_pulse {
namespace {

constexpr uint64_t kLaterLaunchNs = 1000000000;

}  // namespace

void InflightOperations::Look(uint32_t record_generation, OperationRing& ring, bool by_kernel) {
  const uint64_t end = ring.end();
  if (record_generation_ != record_generation) {
    *this = {};
    record_generation_ = record_generation;
  }
  const uint64_t begin = ring.begin(end);
  const uint64_t ended_before_ns = newest_ended_ns_;
  uint64_t oldest_ns = 0;
  uint64_t oldest_operation = 0;
  uint64_t seen_from = end;
  bool is_cut_short = false;
  // Backwards, so that ended operations are known before the older ones that they prove to have
  // ended.
  for (uint64_t number = end; number-- > begin;) {
    OperationState state;
    const bool is_whole = ring.slot(OperationRing::IndexOf(number)).Look(&state);
    // A newer operation may have taken the place by now, and then also the places of all operations
    // before this one. The newer one raised end() before it published its fields, which Look
    // acquires. A place that is only claimed does not show this; but the oldest operation was
    // published, so only a newer one can be writing there.
    if (number < ring.begin(ring.end()) || (!is_whole && number == oldest_operation_)) {
      is_cut_short = true;
      break;
    }
    seen_from = number;
    if (!is_whole) continue;
    if (state.meta.channels == 0) continue;
    const bool expected = by_kernel ? !state.meta.untimed : state.started() > 0;
    if (!expected) continue;
    const bool ended =
        by_kernel ? state.has(SlotWord::kKernelDone) : state.started() == state.stopped();
    if (ended) {
      ends_are_seen_ = true;
      newest_ended_ns_ = std::max(newest_ended_ns_, state.enqueue_ns);
    } else if (state.has(SlotWord::kOpen) && newest_ended_ns_ < state.enqueue_ns + kLaterLaunchNs) {
      oldest_ns = state.enqueue_ns;
      oldest_operation = number;
    }
  }
  // The oldest operation lost its place to a newer one, and nothing has ended since: it is still
  // the oldest. Only if all places were seen does "none found" mean that none is in flight.
  const bool lost_sight = oldest_ns_ != 0 && oldest_operation_ < seen_from;
  if (!lost_sight || (oldest_ns == 0 && !is_cut_short) || newest_ended_ns_ != ended_before_ns) {
    oldest_ns_ = oldest_ns;
    oldest_operation_ = oldest_operation;
  }
}

}  // namespace nccl_pulse
