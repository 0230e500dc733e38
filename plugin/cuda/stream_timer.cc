#include "plugin/cuda/stream_timer.h"

#include <algorithm>

#include "metrics/driver_error.h"

namespace nccl_pulse {
namespace {

// For so long after finalize, the events of launches in flight are still polled.
constexpr uint64_t kRetirementNs = 5000000000;
// Gates are queried when nothing has completed for this long. So there is no additional query while
// work goes on, and still an answer in time for a suspected hang.
constexpr uint64_t kStandstillNs = 100000000;
constexpr uint64_t kIdleNs = 1000000000;
// A counter that was not read for this long is not used, and after twice this time it counts as
// lost.
constexpr uint64_t kCountedNs = 1000000000;
// A longer pause between two polls means that the process was stopped, not that the counter failed.
constexpr uint64_t kLongestLookNs = 200000000;

}  // namespace

// ---- init and finalize --------------------------------------------------------------------------

bool StreamTimer::Attach(CommunicatorTimer& timer, bool with_pairs) {
  // Acquire: the poller has finished with the timer's last communicator.
  if (timer.state_.acquire() != CommunicatorTimer::kOff) return false;
  if (driver_.context_get_current(&timer.context_) != kCudaSuccess || timer.context_ == nullptr ||
      driver_.context_get_device(&timer.device_) != kCudaSuccess ||
      driver_.context_get_id(timer.context_, &timer.context_id_) != kCudaSuccess) {
    return false;
  }
  bool made = true;
  const auto make = [&](CudaEvent& event, unsigned flags) {
    event = nullptr;  // the old one may have gone with its context
    made = made && driver_.event_create(&event, flags) == kCudaSuccess;
    if (!made) event = nullptr;
  };
  for (TimedPair& pair : timer.pairs_) {
    pair.begin = pair.end = nullptr;
    if (with_pairs) make(pair.begin, kCudaEventTiming);
    if (with_pairs) make(pair.end, kCudaEventTiming);
    pair.state.store(TimedPair::kFree);  // published by the state
  }
  for (LaunchMarker& marker : timer.markers_) make(marker.event, kCudaEventWithoutTiming);
  const auto make_shared = [&](Relaxed<CudaEvent>& event) {
    CudaEvent made_event = nullptr;
    make(made_event, kCudaEventWithoutTiming);
    event.store(made_event);  // published by the state
  };
  for (LaunchGate& gate : timer.gates_) {
    make(gate.front, kCudaEventWithoutTiming);
    make_shared(gate.behind);
  }
  make(timer.newest_gate_.front, kCudaEventWithoutTiming);
  make_shared(timer.newest_gate_.behind);
  make_shared(timer.tail_);
  if (!made) {
    DestroyEvents(timer);
    return false;
  }
  timer.failed_.store(false);  // published by the state, like all below
  timer.error_.store(0);
  timer.asked_idle_ns_ = 0;
  timer.launched_.store(0);
  timer.tail_launch_.store(0);
  timer.is_counted_.store(false);
  timer.may_not_count_.store(false);
  timer.counted_ns_ = timer.uncounted_for_ns_ = timer.looked_ns_ = 0;
  timer.armed_markers_.store(0);
  timer.cleared_markers_.store(0);
  timer.marker_spacing_ns_.store(kMarkerSpacingNs);
  timer.last_marker_ns_.store(0);
  timer.armed_gates_.store(0);
  timer.cleared_gates_.store(0);
  timer.newest_gate_.launch.store(0);
  timer.gate_.store(CommunicatorTimer::kNoGate);
  timer.completed_.store(0);
  timer.by_events_.store(0);
  timer.oldest_ns_.store(0);
  timer.taken_launches_ = 0;
  timer.begun_ = 0;
  timer.progress_ns_ = 0;
  timer.state_.publish(CommunicatorTimer::kOn);  // publishes the events
  return true;
}

void StreamTimer::Retire(CommunicatorTimer& timer, uint64_t now_ns) {
  // The caller holds the lock under which states change, except kRetired -> kOff.
  if (timer.state_.load() != CommunicatorTimer::kOn) return;
  timer.retired_ns_.store(now_ns);  // published by the state
  timer.state_.publish(CommunicatorTimer::kRetired);
}

// ---- launching thread ---------------------------------------------------------------------------

uint32_t StreamTimer::BeginTiming(CommunicatorTimer& timer, CudaStream stream) {
  for (uint32_t i = 0; i < kTimedPairs; ++i) {
    TimedPair& pair = timer.pairs_[i];
    // Acquire: the poller has finished with the pair.
    if (pair.state.acquire() != TimedPair::kFree) continue;
    if (pair.begin == nullptr) return kNoPair;
    if (const int result = driver_.event_record(pair.begin, stream); result != kCudaSuccess) {
      Fail(timer, result);
      return kNoPair;
    }
    pair.state.store(TimedPair::kTaken);  // only the launching thread cares
    return i;
  }
  return kNoPair;
}

void StreamTimer::RecordGate(CommunicatorTimer& timer, CudaStream stream, uint64_t now_ns) {
  const uint32_t armed = timer.armed_gates_.load();  // only this thread writes it
  // Acquire: the poller is done with what it has cleared.
  const bool in_ring = armed - timer.cleared_gates_.acquire() < kGates;
  LaunchGate& gate = in_ring ? timer.gates_[armed % kGates] : timer.newest_gate_;
  if (!in_ring) {
    // The poller may be querying this gate. The number changes before the event is recorded, and
    // this fence keeps that order: a poller that queries the newly recorded event finds that the
    // number has changed.
    gate.launch.store(0);
    std::atomic_thread_fence(std::memory_order_release);  // as argued above
  }
  if (const int result = driver_.event_record(gate.front, stream); result != kCudaSuccess) {
    Fail(timer, result);
    return;
  }
  gate.ns.store(now_ns);  // published with the number
  timer.gate_.store(in_ring ? CommunicatorTimer::kRingGate
                            : CommunicatorTimer::kNewestGate);  // only this thread writes it
}

bool StreamTimer::EndPair(CommunicatorTimer& timer, CudaStream stream, uint32_t index,
                          uint64_t now_ns) {
  TimedPair& pair = timer.pairs_[index];
  pair.launch_ns.store(now_ns);  // published when it is armed
  bool kept = timer.is_on();
  if (kept) {
    const int result = driver_.event_record(pair.end, stream);
    if (result != kCudaSuccess) kept = Fail(timer, result);
  }
  // Release: the poller sees everything about the pair. Only the launching thread takes it out of
  // kTaken.
  pair.state.publish(kept ? TimedPair::kArmed : TimedPair::kFree);
  return kept;
}

void StreamTimer::EndWithMore(CommunicatorTimer& timer, CudaStream stream, uint64_t launched,
                              uint64_t now_ns) {
  if (IsMarkerDue(timer, now_ns) && !RecordMarker(timer, stream, launched, now_ns)) return;
  CudaEvent const last_tail = timer.tail_.load();
  LaunchGate* const gate = PendingGate(timer);
  // If the tail is right before the gate's launch, it becomes `behind`, and the next tail takes the
  // gate's old event.
  const bool has_behind = timer.tail_launch_.load() == launched - 1;
  CudaEvent const tail = gate != nullptr && has_behind ? gate->behind.load() : last_tail;
  if (!RecordTail(timer, tail, stream)) return;
  if (gate != nullptr) {
    timer.tail_.publish(tail);  // a thread that sees this tail sees it behind this launch
    EndGate(timer, *gate, has_behind ? last_tail : nullptr, launched);
  }
  CountTail(timer, launched);
  CountLaunch(timer, launched, now_ns);
}

void StreamTimer::EndGate(CommunicatorTimer& timer, LaunchGate& gate, CudaEvent last_tail,
                          uint64_t launched) {
  // Published with the number; only this thread writes it.
  const uint32_t without = timer.gates_without_behind_.load() & ~timer.BitOf(gate);
  timer.gates_without_behind_.store(last_tail != nullptr ? without : without | timer.BitOf(gate));
  if (last_tail != nullptr) gate.behind.store(last_tail);  // likewise
  gate.launch.publish(launched);                           // sees both events, and when
  if (&gate != &timer.newest_gate_) {
    timer.armed_gates_.publish(timer.armed_gates_.load() + 1);
  }
  timer.gate_.store(CommunicatorTimer::kNoGate);  // only this thread writes it
}

bool StreamTimer::RecordMarker(CommunicatorTimer& timer, CudaStream stream, uint64_t launched,
                               uint64_t now_ns) {
  const uint32_t armed = timer.armed_markers_.load();  // only this thread writes it
  // Acquire: the poller is done with what it has cleared.
  const uint32_t waiting = armed - timer.cleared_markers_.acquire();
  const bool is_due =
      waiting == 0 || (waiting < kMarkers &&
                       now_ns >= timer.last_marker_ns_.load() + timer.marker_spacing_ns_.load());
  if (!is_due) return true;
  LaunchMarker& marker = timer.markers_[armed % kMarkers];
  const int result = driver_.event_record(marker.event, stream);
  if (result != kCudaSuccess) return Fail(timer, result);
  marker.launch.store(launched);  // published by the count
  marker.ns.store(now_ns);
  timer.last_marker_ns_.store(now_ns);  // only this thread writes it
  timer.armed_markers_.publish(armed + 1);
  return true;
}

// ---- poller -------------------------------------------------------------------------------------

bool StreamTimer::Poll(CommunicatorTimer& timer, const CountedLaunches& counted, uint64_t now_ns,
                       Results& results, Progress* progress) {
  const bool retired = timer.state() == CommunicatorTimer::kRetired;  // acquire: sees when
  bool entered = false;
  for (uint32_t i = 0; i < kTimedPairs; ++i) {
    TimedPair& pair = timer.pairs_[i];
    // Acquire: sees what the launching thread wrote before it armed the pair.
    if (pair.state.acquire() != TimedPair::kArmed) continue;
    uint64_t duration_ns = 0;
    // The duration of an aborted communicator's operation is meaningless.
    const PairState state = retired || timer.failed_.load()
                                ? PairState::kLost
                                : PollPair(timer, pair, &entered, &duration_ns);
    if (state == PairState::kWaiting) {
      progress->in_flight = true;
      continue;
    }
    if (state == PairState::kDone) {
      results.OnTimed(i, pair.launch_ns.load(), duration_ns);
    } else {
      results.OnLost(i);
    }
    pair.state.publish(TimedPair::kFree);  // hands the pair back
  }
  return !timer.failed_.load() && PollHeartbeat(timer, counted, now_ns, &entered, progress);
}

void CommunicatorTimer::SetCounted(bool is_counted) {
  is_counted = is_counted && !may_not_count_.load();
  // Rarely: the launching thread has that line. Being late is harmless.
  if (is_counted_.load() == is_counted) return;
  is_counted_.store(is_counted);
  std::atomic_thread_fence(std::memory_order_seq_cst);  // see StopCounting
  if (may_not_count_.load()) is_counted_.store(false);
}

uint64_t CommunicatorTimer::UncountedFor(const CountedLaunches& counted, uint64_t now_ns) {
  const bool is_new = counted.counted_ns > counted_ns_;
  const uint64_t passed_ns = now_ns - std::min(looked_ns_, now_ns);
  uncounted_for_ns_ = is_new ? 0 : uncounted_for_ns_ + std::min(passed_ns, kLongestLookNs);
  counted_ns_ = std::max(counted_ns_, counted.counted_ns);
  looked_ns_ = now_ns;
  return uncounted_for_ns_;
}

uint64_t StreamTimer::TakeLaunches(CommunicatorTimer& timer) {
  const uint64_t launched = timer.launched_.load();  // for a rate: needs no order
  const uint64_t taken = launched - timer.taken_launches_;
  timer.taken_launches_ = launched;
  return taken;
}

StreamTimer::PairState StreamTimer::PollPair(CommunicatorTimer& timer, TimedPair& pair,
                                             bool* entered, uint64_t* duration_ns) {
  float milliseconds = 0;
  int result = Enter(timer, entered);
  if (result == kCudaSuccess) result = driver_.event_query(pair.end);
  if (result == kCudaNotReady) return PairState::kWaiting;
  if (result == kCudaSuccess) {
    result = driver_.event_elapsed_time(&milliseconds, pair.begin, pair.end);
  }
  if (result != kCudaSuccess) {
    Fail(timer, result);
    return PairState::kLost;
  }
  const double ns = static_cast<double>(milliseconds) * 1e6;
  *duration_ns = ns > 0 ? static_cast<uint64_t>(ns) : 0;
  return PairState::kDone;
}

bool StreamTimer::PollHeartbeat(CommunicatorTimer& timer, const CountedLaunches& counted,
                                uint64_t now_ns, bool* entered, Progress* progress) {
  const uint64_t launched = timer.launched_.acquire();  // see CountLaunch
  const uint64_t last_launch_ns = timer.last_launch_ns_.load();
  const uint64_t before = timer.completed_.load();  // only this thread writes it
  uint64_t by_events = timer.by_events_.load();     // likewise
  timer.SetCounted(counted.counted_ns != 0 && now_ns < counted.counted_ns + kCountedNs);
  const bool is_counter_lost =
      timer.UncountedFor(counted, now_ns) >= 2 * kCountedNs || counted.counted_ns == 0;
  bool is_tail_complete = false;
  uint64_t waiting_ns = 0;  // when the oldest launch with a waiting marker was made
  if (before < launched) {
    if (const int error = Enter(timer, entered); error != kCudaSuccess) {
      return Fail(timer, error);
    }
    const uint32_t armed = timer.armed_markers_.acquire();  // sees the markers
    uint32_t cleared = timer.cleared_markers_.load();       // only this thread writes it
    for (; cleared != armed && waiting_ns == 0; ++cleared) {
      const LaunchMarker& marker = timer.markers_[cleared % kMarkers];
      const uint64_t marker_ns = marker.ns.load();
      const int result = driver_.event_query(marker.event);
      if (result == kCudaNotReady) {
        waiting_ns = marker_ns;
        break;
      }
      if (result != kCudaSuccess) return Fail(timer, result);
      by_events = std::max(by_events, marker.launch.load());
      // The GPU is this far behind.
      const uint64_t backlog_ns = now_ns > marker_ns ? now_ns - marker_ns : 0;
      timer.marker_spacing_ns_.store(std::max(kMarkerSpacingNs, backlog_ns / kMarkers));
    }
    timer.cleared_markers_.publish(cleared);  // the markers may be recorded again
    // While an earlier marker waits, the tail cannot be complete.
    if (waiting_ns == 0) {
      // Acquire: sees the tail. A newer tail is behind later launches, see CountTail.
      const uint64_t tail_launch = std::min(timer.tail_launch_.acquire(), launched);
      const int result = driver_.event_query(timer.tail_.acquire());
      if (result != kCudaSuccess && result != kCudaNotReady) return Fail(timer, result);
      is_tail_complete = result == kCudaSuccess;
      if (is_tail_complete) by_events = std::max(by_events, tail_launch);
    }
  } else if (!AskIdle(timer, now_ns, entered)) {
    return false;
  }
  uint64_t completed = std::max(before, by_events);
  if (counted.counted_ns != 0) {
    completed = std::max(completed, std::min(counted.completed, launched));
  }
  Front front{completed};
  const uint64_t known_ns = timer.oldest_ns_.load();  // only this thread writes it
  if (before < launched) {
    const bool ask = completed == before && known_ns != 0 &&
                     now_ns >= std::max(timer.progress_ns_, known_ns) + kStandstillNs;
    if (!PollGates(timer, launched, ask, &front)) return false;
    completed = front.completed;
  }
  uint64_t oldest_ns = 0;
  if (completed < launched) {
    if (timer.begun_ == completed + 1) {
      progress->oldest = OldestLaunch::kBegun;
      progress->is_at_oldest = front.standing == completed + 1;
    }
    if (front.waiting == completed + 1) progress->oldest = OldestLaunch::kNotBegun;
    // No launch after the completed tail has a tail, so their completion is not known.
    if (progress->oldest == OldestLaunch::kUnknown && is_tail_complete && is_counter_lost) {
      progress->oldest = OldestLaunch::kUntold;
    }
    // The gate of the oldest launch gives its exact time. Otherwise, if nothing completed since the
    // last poll, the oldest launch is the same as then. Otherwise it is between the last complete
    // marker and the next, or between that marker and the newest launch.
    const uint64_t exact_ns = progress->oldest == OldestLaunch::kNotBegun ? front.waiting_ns
                              : progress->oldest == OldestLaunch::kBegun  ? front.begun_ns
                                                                          : 0;
    oldest_ns = exact_ns != 0                          ? exact_ns
                : known_ns != 0 && completed == before ? known_ns
                : waiting_ns != 0                      ? waiting_ns
                                                       : last_launch_ns;
    if (progress->oldest != OldestLaunch::kUntold) progress->in_flight = true;
  }
  if (completed != before) timer.progress_ns_ = now_ns;
  timer.oldest_ns_.store(oldest_ns);  // only this thread writes it
  timer.completed_.store(completed);
  timer.by_events_.store(by_events);
  progress->completed = completed;
  progress->oldest_ns = progress->oldest == OldestLaunch::kUntold ? 0 : oldest_ns;
  progress->progress_ns = timer.progress_ns_;
  progress->advanced = completed != before;
  return true;
}

bool StreamTimer::PollGates(CommunicatorTimer& timer, uint64_t launched, bool ask, Front* front) {
  const uint32_t armed = timer.armed_gates_.acquire();  // sees the gates
  uint32_t cleared = timer.cleared_gates_.load();       // only this thread writes it
  for (; cleared != armed; ++cleared) {
    const LaunchGate& gate = timer.gates_[cleared % kGates];
    const uint64_t launch = gate.launch.load();
    if (launch <= front->completed) continue;
    if (!ask || launch > launched) break;  // made since then: for the next round
    if (const int error = AskGate(timer, gate, launch, front); error != kCudaSuccess) {
      return Fail(timer, error);
    }
    if (front->waiting != 0) break;
  }
  timer.cleared_gates_.publish(cleared);  // the gates may be recorded again
  // Acquire: sees the event as it was recorded for this launch.
  const uint64_t launch = timer.newest_gate_.launch.acquire();
  if (!ask || launch > launched || launch <= front->completed || launch <= timer.begun_ ||
      (front->waiting != 0 && launch > front->waiting)) {
    return true;
  }
  const int error = AskGate(timer, timer.newest_gate_, launch, front);
  return error == kCudaSuccess || Fail(timer, error);
}

int StreamTimer::AskGate(CommunicatorTimer& timer, const LaunchGate& gate, uint64_t launch,
                         Front* front) {
  const uint64_t ns = gate.ns.load();
  const int result = driver_.event_query(gate.front);
  if (result != kCudaSuccess && result != kCudaNotReady) return result;
  const bool has_begun = result == kCudaSuccess;
  // Asks whether the launches before this one have ended. If this one has begun, they have.
  const bool has_behind = (timer.gates_without_behind_.load() & timer.BitOf(gate)) == 0;
  const int before = has_begun || front->completed >= launch - 1 ? kCudaSuccess
                     : has_behind ? driver_.event_query(gate.behind.load())
                                  : kCudaNotReady;
  if (before != kCudaSuccess && before != kCudaNotReady) return before;
  // If `newest_gate_` has been recorded again, the answers are about another launch: see
  // RecordGate.
  std::atomic_thread_fence(std::memory_order_acquire);  // as argued above
  if (gate.launch.load() != launch) return kCudaSuccess;
  if (before == kCudaSuccess) front->completed = std::max(front->completed, launch - 1);
  if (before == kCudaNotReady && has_behind) front->standing = launch - 1;
  if (!has_begun) {
    front->waiting = launch;
    front->waiting_ns = ns;
  } else if (launch > timer.begun_) {
    timer.begun_ = launch;
    front->begun_ns = ns;
  }
  return kCudaSuccess;
}

bool StreamTimer::AskIdle(CommunicatorTimer& timer, uint64_t now_ns, bool* entered) {
  const bool is_due = timer.launched_.load() != 0 && now_ns >= timer.asked_idle_ns_ + kIdleNs;
  if (!is_due || timer.state() != CommunicatorTimer::kOn) return true;
  timer.asked_idle_ns_ = now_ns;
  int result = Enter(timer, entered);
  if (result == kCudaSuccess) result = driver_.event_query(timer.tail_.acquire());
  // Any other result comes from a context that the application has destroyed, or from a later
  // launch.
  return DriverErrorName(static_cast<uint32_t>(result)) == nullptr || Fail(timer, result);
}

int StreamTimer::Enter(const CommunicatorTimer& timer, bool* entered) {
  if (*entered) return kCudaSuccess;
  const int result = EnterContext(driver_, timer.context_, timer.context_id_);
  *entered = result == kCudaSuccess;
  return result;
}

bool StreamTimer::IsOver(const CommunicatorTimer& timer, uint64_t now_ns) {
  // Acquire: sees the time of Retire.
  return timer.state_.acquire() == CommunicatorTimer::kRetired &&
         now_ns >= timer.retired_ns_.load() + kRetirementNs;
}

void StreamTimer::Destroy(CommunicatorTimer& timer) {
  bool entered = false;
  // If the context is gone, its events went with it.
  if (Enter(timer, &entered) == kCudaSuccess) DestroyEvents(timer);
  timer.state_.publish(CommunicatorTimer::kOff);  // hands the timer back
}

void StreamTimer::DestroyEvents(CommunicatorTimer& timer) {
  const auto destroy = [this](CudaEvent& event) {
    if (event != nullptr) driver_.event_destroy(event);
    event = nullptr;
  };
  for (TimedPair& pair : timer.pairs_) {
    destroy(pair.begin);
    destroy(pair.end);
  }
  for (LaunchMarker& marker : timer.markers_) destroy(marker.event);
  const auto destroy_shared = [&destroy](Relaxed<CudaEvent>& event) {
    CudaEvent made = event.exchange(nullptr);  // from here on no other thread has it
    destroy(made);
  };
  for (LaunchGate& gate : timer.gates_) {
    destroy(gate.front);
    destroy_shared(gate.behind);
  }
  destroy(timer.newest_gate_.front);
  destroy_shared(timer.newest_gate_.behind);
  destroy_shared(timer.tail_);
}

}  // namespace nccl_pulse
