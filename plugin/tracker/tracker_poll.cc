// Tracker, the part of the background thread: what became of the launches that are followed.
#include <algorithm>

#include "plugin/tracker/tracker.h"

namespace nccl_pulse {

void Tracker::CountTimedLaunch(Communicator& communicator, uint32_t record_generation,
                               const TimedPair& pair, uint64_t duration_ns) {
  LaneWriter lane(segment_, *communicator.record, record_generation, LaneRole::kProgress);
  if (!lane.ok()) return Ignore(IgnoredReason::kNoRoom);
  // Relaxed: published when the pair was armed. What Coll and P2p added since came microseconds
  // after the launch, long before a poll.
  OperationMeta meta = OperationMeta::Unpack(pair.call_meta.load(std::memory_order_relaxed));
  uint64_t bytes = pair.call_bytes.load(std::memory_order_relaxed);
  uint64_t bus_bytes = pair.call_bus_bytes.load(std::memory_order_relaxed);
  if (pair.calls.load(std::memory_order_relaxed) != 1) {
    if (pair.seen.load(std::memory_order_relaxed) > 0) {
      bytes = pair.seen_bytes.load(std::memory_order_relaxed);
      bus_bytes = pair.seen_bus_bytes.load(std::memory_order_relaxed);
    }
    meta = {kGroupedName, static_cast<uint8_t>(SizeClassOf(bytes)), 0, false, meta.call_number};
  }
  CountLatency(communicator, lane, LatencyKind::kDurationStream, meta, bytes, bus_bytes,
               duration_ns, pair.launch_ns.load(std::memory_order_relaxed) + duration_ns);
}

// Of several operations each has been counted as one of a group.
void Tracker::CountLostLaunch(Communicator& communicator, uint32_t record_generation,
                              const TimedPair& pair) {
  if (pair.calls.load(std::memory_order_relaxed) != 1) return;  // as in CountTimedLaunch
  LaneWriter lane(segment_, *communicator.record, record_generation, LaneRole::kProgress);
  if (!lane.ok()) return Ignore(IgnoredReason::kNoRoom);
  const auto meta = OperationMeta::Unpack(pair.call_meta.load(std::memory_order_relaxed));
  CountUntimed(lane, meta.op, UntimedReason::kLost);
}

bool Tracker::PollLaunches() {
  const uint64_t now_ns = clock_.NowNs();
  bool in_flight = false;
  const uint32_t used = used_slots_.load(std::memory_order_acquire);
  for (uint32_t i = 0; i < used; ++i) {
    KeepPagesToSettle();
    if (stream_timer_ != nullptr) {
      in_flight |= PollCommunicator(slots_[i], now_ns);
      PublishUnreportedCalls(slots_[i]);
    }
    FollowOperations(slots_[i]);
    CountAbandonedCall(slots_[i]);
  }
  if (graphs_ != nullptr) in_flight |= PollGraphs(now_ns);
  return in_flight;
}

// A call that became no operation, or waits within NCCL to become one.
void Tracker::CountAbandonedCall(Communicator& communicator) {
  if (communicator.launching == nullptr) return;
  // Relaxed: whoever counts it looks again.
  const bool is_uncounted =
      communicator.record->followed.uncounted_call.load(std::memory_order_relaxed) != 0;
  // Seen twice: most calls are counted by their operation a few microseconds later, which is not to
  // find its lane taken.
  if (is_uncounted && communicator.uncounted_seen) CountLeftCall(communicator);
  communicator.uncounted_seen = is_uncounted;
}

bool Tracker::PollCommunicator(Communicator& communicator, uint64_t now_ns) {
  if (communicator.launching == nullptr) return false;
  CommunicatorTimer& timer = communicator.launching->timer;
  CommunicatorRecord& record = *communicator.record;
  // Before the state: a driver call may block until the place has a new owner, whose numbers are
  // not to be touched then.
  const uint32_t record_generation = communicator.record_generation.load(std::memory_order_acquire);
  const uint32_t state = timer.state.load(std::memory_order_acquire);  // sees the events
  if (state == CommunicatorTimer::kOff) return false;
  // When the record was recycled, or the place already belongs to the next communicator, which then
  // has no timer, the old one's end is nobody's. Asked anew behind each driver call. Relaxed: a
  // lane's claim looks again.
  const auto is_owned = [&] {
    return record.generation.load(std::memory_order_relaxed) == record_generation &&
           (state == CommunicatorTimer::kOn ||
            communicator.context.load(std::memory_order_acquire) == 0);
  };
  StreamTimer::Progress progress;
  const bool alive = stream_timer_->Poll(
      timer, now_ns,
      [&](const TimedPair& pair, uint64_t duration_ns) {
        if (is_owned()) CountTimedLaunch(communicator, record_generation, pair, duration_ns);
      },
      [&](const TimedPair& pair) {
        if (is_owned()) CountLostLaunch(communicator, record_generation, pair);
      },
      &progress);
  const bool ends = StreamTimer::IsOver(timer, now_ns);
  const bool counts = is_owned();
  // Absent rather than wrong: when the driver failed, and when nobody looks any longer.
  if (counts && (!alive || (ends && progress.in_flight))) {
    WriterOf(communicator)
        .ChangeCompletionSource(CompletionSource::kStream, CompletionSource::kNone);
  }
  if (StreamTimer::IsQuiet(timer)) {
    communicator.launching->pending.is_unhurried.store(true, std::memory_order_relaxed);  // alone
  }
  if (counts && alive) {
    // Held, so that the record is not recycled meanwhile.
    LaneWriter lane(segment_, record, record_generation, LaneRole::kBackground);
    if (lane.ok()) {
      WriterOf(communicator)
          .StoreHeartbeat({progress.completed, progress.oldest_ns, progress.oldest});
      NoteWait(communicator, record_generation, progress, now_ns);
      if (progress.advanced) {
        lane.lane().last_completion_ns.store(now_ns, std::memory_order_relaxed);  // orders nothing
      }
    }
  }
  if (ends) stream_timer_->Destroy(timer);
  return progress.in_flight || progress.advanced;
}

// A wait counts as long as it was seen to last: a thread that was stopped meanwhile, or stuck in
// the driver, does not know when it ended.
void Tracker::NoteWait(Communicator& communicator, uint32_t record_generation,
                       const StreamTimer::Progress& progress, uint64_t now_ns) {
  constexpr uint64_t kShortestNs = 1000000000;
  Standstill& standstill = communicator.standstill;
  CommunicatorRecord& record = *communicator.record;
  if (standstill.record_generation != record_generation) standstill = {record_generation, 0, 0, 0};
  if (progress.advanced || progress.oldest_ns == 0) {
    const uint64_t waited_ns =
        standstill.since_ns != 0 ? standstill.seen_ns - standstill.since_ns : 0;
    standstill.since_ns = 0;
    // One that ends with its communicator did not end well.
    if (waited_ns < kShortestNs || !progress.advanced ||
        communicator.context.load(std::memory_order_relaxed) == 0) {
      return;
    }
    return WriterOf(communicator).NoteWait(standstill.row, waited_ns);
  }
  const uint64_t progress_ns = communicator.launching->timer.progress_ns;
  // FollowedLaunches::last_call: 1 + op | size class. Relaxed: stands alone.
  const uint64_t last_call = record.followed.last_call.load(std::memory_order_relaxed);
  standstill.since_ns = std::max(progress.oldest_ns, progress_ns);
  standstill.seen_ns = std::max(now_ns, standstill.since_ns);
  standstill.row = last_call != 0 ? OperationRowOf(static_cast<NameId>((last_call & 0xff) - 1))
                                  : uint32_t{kWaitRows - 1};
}

void Tracker::AdaptSampling() {
  if (stream_timer_ == nullptr || timing_ != TimingMode::kAuto) return;
  const uint64_t now_ns = clock_.NowNs();
  uint64_t launches = 0;
  uint64_t devices = 0;
  const uint32_t used = used_slots_.load(std::memory_order_acquire);
  for (uint32_t i = 0; i < used; ++i) {
    if (slots_[i].launching == nullptr) continue;
    CommunicatorTimer& timer = slots_[i].launching->timer;
    if (!timer.is_on()) continue;
    devices |= uint64_t{1} << (timer.device & 63);
    const uint64_t launched = timer.launched.load(std::memory_order_relaxed);  // a rate: no order
    launches += launched - timer.adapted_launches;
    timer.adapted_launches = launched;
  }
  if (adapted_ns_ != 0 && now_ns > adapted_ns_) {
    const double seconds = static_cast<double>(now_ns - adapted_ns_) / 1e9;
    sampler_.Adapt(static_cast<double>(launches) / seconds, __builtin_popcountll(devices));
    segment_.header().sampling_exponent.store(sampler_.exponent(), std::memory_order_relaxed);
  }
  adapted_ns_ = now_ns;
}

}  // namespace nccl_pulse
