#include "plugin/cuda/stream_timer.h"

#include <algorithm>

namespace nccl_pulse {
namespace {

// A callback that was running when its communicator was finalized has long ended after this.
constexpr uint64_t kRetirementNs = 5000000000;
// Gates are asked when nothing has completed for so long: no query more while work goes on, and
// soon enough for whoever suspects a hang.
constexpr uint64_t kStandstillNs = 100000000;

}  // namespace

// ---- init and finalize --------------------------------------------------------------------------

bool StreamTimer::Attach(CommunicatorTimer& timer, bool with_pairs) {
  // Acquire: the poller has finished with the timer's last communicator.
  if (timer.state.load(std::memory_order_acquire) != CommunicatorTimer::kOff) return false;
  if (driver_.context_get_current(&timer.context) != kCudaSuccess || timer.context == nullptr ||
      driver_.context_get_device(&timer.device) != kCudaSuccess ||
      driver_.context_get_id(timer.context, &timer.context_id) != kCudaSuccess) {
    return false;
  }
  bool made = true;
  const auto make = [&](CudaEvent& event, unsigned flags) {
    event = nullptr;  // it may be one that went with its context
    made = made && driver_.event_create(&event, flags) == kCudaSuccess;
    if (!made) event = nullptr;
  };
  for (TimedPair& pair : timer.pairs) {
    pair.begin = pair.end = nullptr;
    if (with_pairs) make(pair.begin, kCudaEventTiming);
    if (with_pairs) make(pair.end, kCudaEventTiming);
    pair.state.store(TimedPair::kFree, std::memory_order_relaxed);  // published by the state
  }
  for (LaunchMarker& marker : timer.markers) make(marker.event, kCudaEventWithoutTiming);
  const auto make_shared = [&](std::atomic<CudaEvent>& event) {
    CudaEvent made_event = nullptr;
    make(made_event, kCudaEventWithoutTiming);
    event.store(made_event, std::memory_order_relaxed);  // published by the state
  };
  for (LaunchGate& gate : timer.gates) {
    make(gate.front, kCudaEventWithoutTiming);
    make_shared(gate.behind);
  }
  make(timer.newest_gate.front, kCudaEventWithoutTiming);
  make_shared(timer.newest_gate.behind);
  make_shared(timer.tail);
  if (!made) {
    DestroyEvents(timer);
    return false;
  }
  timer.failed.store(false, std::memory_order_relaxed);  // published by the state, like all below
  timer.launched.store(0, std::memory_order_relaxed);
  timer.armed_markers.store(0, std::memory_order_relaxed);
  timer.cleared_markers.store(0, std::memory_order_relaxed);
  timer.marker_spacing_ns.store(kMarkerSpacingNs, std::memory_order_relaxed);
  timer.last_marker_ns.store(0, std::memory_order_relaxed);
  timer.armed_gates.store(0, std::memory_order_relaxed);
  timer.cleared_gates.store(0, std::memory_order_relaxed);
  timer.newest_gate.launch.store(0, std::memory_order_relaxed);
  timer.gate.store(CommunicatorTimer::kNoGate, std::memory_order_relaxed);
  timer.completed.store(0, std::memory_order_relaxed);
  timer.oldest_ns.store(0, std::memory_order_relaxed);
  timer.adapted_launches = 0;
  timer.seen_launches = 0;
  timer.begun = 0;
  timer.progress_ns = 0;
  timer.state.store(CommunicatorTimer::kOn, std::memory_order_release);  // publishes the events
  return true;
}

void StreamTimer::Retire(CommunicatorTimer& timer, uint64_t now_ns) {
  // Relaxed: changed under the lock that the caller holds, but for kRetired -> kOff.
  if (timer.state.load(std::memory_order_relaxed) != CommunicatorTimer::kOn) return;
  timer.retired_ns.store(now_ns, std::memory_order_relaxed);  // published by the state
  timer.state.store(CommunicatorTimer::kRetired, std::memory_order_release);
}

// ---- launching thread ---------------------------------------------------------------------------

TimedPair* StreamTimer::BeginTiming(CommunicatorTimer& timer, CudaStream stream) {
  for (TimedPair& pair : timer.pairs) {
    // Acquire: the poller has finished with the pair.
    if (pair.state.load(std::memory_order_acquire) != TimedPair::kFree) continue;
    if (pair.begin == nullptr) return nullptr;
    if (driver_.event_record(pair.begin, stream) != kCudaSuccess) {
      Fail(timer);
      return nullptr;
    }
    pair.state.store(TimedPair::kTaken, std::memory_order_relaxed);  // of use to this side only
    pair.seen.store(0, std::memory_order_relaxed);                   // published when it is armed
    pair.seen_bytes.store(0, std::memory_order_relaxed);
    pair.seen_bus_bytes.store(0, std::memory_order_relaxed);
    return &pair;
  }
  return nullptr;
}

void StreamTimer::RecordGate(CommunicatorTimer& timer, CudaStream stream, uint64_t now_ns) {
  const uint32_t armed = timer.armed_gates.load(std::memory_order_relaxed);  // this side's own
  // Acquire: the poller is done with what it has cleared.
  const bool in_ring = armed - timer.cleared_gates.load(std::memory_order_acquire) < kGates;
  LaunchGate& gate = in_ring ? timer.gates[armed % kGates] : timer.newest_gate;
  if (!in_ring) {
    // The poller may be asking about it. Before the record, which this fence keeps behind the
    // store: who asks an event as it is recorded from now on finds that the number has changed.
    gate.launch.store(0, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_release);
  }
  if (driver_.event_record(gate.front, stream) != kCudaSuccess) {
    Fail(timer);
    return;
  }
  gate.ns.store(now_ns, std::memory_order_relaxed);  // published with the number
  timer.gate.store(in_ring ? CommunicatorTimer::kRingGate : CommunicatorTimer::kNewestGate,
                   std::memory_order_relaxed);  // this side's own
}

bool StreamTimer::EndPair(CommunicatorTimer& timer, CudaStream stream, TimedPair& pair,
                          uint64_t now_ns) {
  pair.launch_ns.store(now_ns, std::memory_order_relaxed);  // published when it is armed
  bool kept = timer.is_on();
  if (kept && driver_.event_record(pair.end, stream) != kCudaSuccess) kept = Fail(timer);
  // Release: the poller sees everything about the pair. Only this side takes it out of kTaken.
  pair.state.store(kept ? TimedPair::kArmed : TimedPair::kFree, std::memory_order_release);
  return kept;
}

void StreamTimer::EndGate(CommunicatorTimer& timer, LaunchGate& gate, CudaEvent last_tail,
                          uint64_t launched) {
  gate.behind.store(last_tail, std::memory_order_relaxed);  // published with the number
  gate.launch.store(launched, std::memory_order_release);   // sees both events, and when
  if (&gate != &timer.newest_gate) {
    timer.armed_gates.store(timer.armed_gates.load(std::memory_order_relaxed) + 1,
                            std::memory_order_release);
  }
  timer.gate.store(CommunicatorTimer::kNoGate, std::memory_order_relaxed);  // this side's own
}

bool StreamTimer::RecordMarker(CommunicatorTimer& timer, CudaStream stream, uint64_t launched,
                               uint64_t now_ns) {
  const uint32_t armed = timer.armed_markers.load(std::memory_order_relaxed);  // this side's own
  // Acquire: the poller is done with what it has cleared.
  const uint32_t waiting = armed - timer.cleared_markers.load(std::memory_order_acquire);
  const bool is_due =
      waiting == 0 ||
      (waiting < kMarkers && now_ns >= timer.last_marker_ns.load(std::memory_order_relaxed) +
                                           timer.marker_spacing_ns.load(std::memory_order_relaxed));
  if (!is_due) return true;
  LaunchMarker& marker = timer.markers[armed % kMarkers];
  if (driver_.event_record(marker.event, stream) != kCudaSuccess) return Fail(timer);
  marker.launch.store(launched, std::memory_order_relaxed);  // published by the count
  marker.ns.store(now_ns, std::memory_order_relaxed);
  timer.last_marker_ns.store(now_ns, std::memory_order_relaxed);  // this side's own
  timer.armed_markers.store(armed + 1, std::memory_order_release);
  return true;
}

// ---- poller -------------------------------------------------------------------------------------

StreamTimer::PairState StreamTimer::PollPair(CommunicatorTimer& timer, TimedPair& pair,
                                             bool* entered, uint64_t* duration_ns) {
  float milliseconds = 0;
  int result = kCudaSuccess;
  if (!EnterContext(timer, entered) ||
      ((result = driver_.event_query(pair.end)) != kCudaSuccess && result != kCudaNotReady) ||
      (result == kCudaSuccess &&
       driver_.event_elapsed_time(&milliseconds, pair.begin, pair.end) != kCudaSuccess)) {
    Fail(timer);
    return PairState::kLost;
  }
  if (result == kCudaNotReady) return PairState::kWaiting;
  const double ns = static_cast<double>(milliseconds) * 1e6;
  *duration_ns = ns > 0 ? static_cast<uint64_t>(ns) : 0;
  return PairState::kDone;
}

bool StreamTimer::PollHeartbeat(CommunicatorTimer& timer, uint64_t now_ns, bool* entered,
                                Progress* progress) {
  const uint64_t launched = timer.launched.load(std::memory_order_acquire);  // see End
  const uint64_t last_launch_ns = timer.last_launch_ns.load(std::memory_order_relaxed);
  const uint64_t before = timer.completed.load(std::memory_order_relaxed);  // this side's own
  uint64_t completed = before;
  uint64_t waiting_ns = 0;  // when the launch was made behind which a marker waits
  if (completed < launched) {
    if (!EnterContext(timer, entered)) return Fail(timer);
    const uint32_t armed = timer.armed_markers.load(std::memory_order_acquire);  // sees them
    uint32_t cleared = timer.cleared_markers.load(std::memory_order_relaxed);    // this side's own
    for (; cleared != armed && waiting_ns == 0; ++cleared) {
      const LaunchMarker& marker = timer.markers[cleared % kMarkers];
      const uint64_t marker_ns = marker.ns.load(std::memory_order_relaxed);
      const int result = driver_.event_query(marker.event);
      if (result == kCudaNotReady) {
        waiting_ns = marker_ns;
        break;
      }
      if (result != kCudaSuccess) return Fail(timer);
      completed = std::max(completed, marker.launch.load(std::memory_order_relaxed));
      // So far is the GPU behind. Relaxed: a number that stands alone.
      const uint64_t backlog_ns = now_ns > marker_ns ? now_ns - marker_ns : 0;
      timer.marker_spacing_ns.store(std::max(kMarkerSpacingNs, backlog_ns / kMarkers),
                                    std::memory_order_relaxed);
    }
    timer.cleared_markers.store(cleared, std::memory_order_release);  // they may be recorded again
    // While a marker before it waits, the tail can not be complete.
    if (waiting_ns == 0) {
      // Acquire: one that is newer than `launched` stands behind later launches, see End.
      const int result = driver_.event_query(timer.tail.load(std::memory_order_acquire));
      if (result != kCudaSuccess && result != kCudaNotReady) return Fail(timer);
      if (result == kCudaSuccess) completed = std::max(completed, launched);
    }
  }
  Front front{completed};
  const uint64_t known_ns = timer.oldest_ns.load(std::memory_order_relaxed);  // this side's own
  if (before < launched) {
    const bool ask = completed == before && known_ns != 0 &&
                     now_ns >= std::max(timer.progress_ns, known_ns) + kStandstillNs;
    if (!PollGates(timer, launched, ask, &front)) return false;
    completed = front.completed;
  }
  uint64_t oldest_ns = 0;
  if (completed < launched) {
    if (timer.begun == completed + 1) progress->oldest = OldestLaunch::kBegun;
    if (front.waiting == completed + 1) progress->oldest = OldestLaunch::kNotBegun;
    // Its own gate says it exactly. Else, if nothing completed since the last look, what was the
    // oldest still is; or it is between the last marker and the next, or between the last marker
    // and the newest launch.
    const uint64_t exact_ns = progress->oldest == OldestLaunch::kNotBegun ? front.waiting_ns
                              : progress->oldest == OldestLaunch::kBegun  ? front.begun_ns
                                                                          : 0;
    oldest_ns = exact_ns != 0                          ? exact_ns
                : known_ns != 0 && completed == before ? known_ns
                : waiting_ns != 0                      ? waiting_ns
                                                       : last_launch_ns;
    progress->in_flight = true;
  }
  if (completed != before) timer.progress_ns = now_ns;
  timer.oldest_ns.store(oldest_ns, std::memory_order_relaxed);  // this side's own
  timer.completed.store(completed, std::memory_order_relaxed);
  progress->completed = completed;
  progress->oldest_ns = oldest_ns;
  progress->advanced = completed != before;
  return true;
}

bool StreamTimer::PollGates(CommunicatorTimer& timer, uint64_t launched, bool ask, Front* front) {
  const uint32_t armed = timer.armed_gates.load(std::memory_order_acquire);  // sees them
  uint32_t cleared = timer.cleared_gates.load(std::memory_order_relaxed);    // this side's own
  for (; cleared != armed; ++cleared) {
    const LaunchGate& gate = timer.gates[cleared % kGates];
    const uint64_t launch = gate.launch.load(std::memory_order_relaxed);
    if (launch <= front->completed) continue;
    if (!ask || launch > launched) break;  // one made since: for the next round
    if (!AskGate(timer, gate, launch, front)) return Fail(timer);
    if (front->waiting != 0) break;
  }
  timer.cleared_gates.store(cleared, std::memory_order_release);  // they may be recorded again
  // Acquire: sees that its event was recorded for this launch.
  const uint64_t launch = timer.newest_gate.launch.load(std::memory_order_acquire);
  if (!ask || launch > launched || launch <= front->completed || launch <= timer.begun ||
      (front->waiting != 0 && launch > front->waiting)) {
    return true;
  }
  return AskGate(timer, timer.newest_gate, launch, front) || Fail(timer);
}

bool StreamTimer::AskGate(CommunicatorTimer& timer, const LaunchGate& gate, uint64_t launch,
                          Front* front) {
  const uint64_t ns = gate.ns.load(std::memory_order_relaxed);
  const int result = driver_.event_query(gate.front);
  if (result != kCudaSuccess && result != kCudaNotReady) return false;
  const bool has_begun = result == kCudaSuccess;
  // The launches before it have ended: they have if it has begun.
  const int before =
      has_begun ? kCudaSuccess : driver_.event_query(gate.behind.load(std::memory_order_relaxed));
  if (before != kCudaSuccess && before != kCudaNotReady) return false;
  // The answers were about another launch if `newest_gate` has been recorded again: see RecordGate.
  std::atomic_thread_fence(std::memory_order_acquire);
  if (gate.launch.load(std::memory_order_relaxed) != launch) return true;
  if (before == kCudaSuccess) front->completed = std::max(front->completed, launch - 1);
  if (!has_begun) {
    front->waiting = launch;
    front->waiting_ns = ns;
  } else if (launch > timer.begun) {
    timer.begun = launch;
    front->begun_ns = ns;
  }
  return true;
}

bool StreamTimer::IsQuiet(CommunicatorTimer& timer) {
  const uint64_t launched = timer.launched.load(std::memory_order_relaxed);  // a count: no order
  const bool quiet = launched == timer.seen_launches;
  timer.seen_launches = launched;
  return quiet;
}

bool StreamTimer::EnterContext(const CommunicatorTimer& timer, bool* entered) {
  if (*entered) return true;
  // A context that was reset lives on at its old address, and the addresses of its events may
  // belong to the application's new ones: the id tells.
  uint64_t id = 0;
  *entered = driver_.context_set_current(timer.context) == kCudaSuccess &&
             driver_.context_get_id(timer.context, &id) == kCudaSuccess && id == timer.context_id;
  return *entered;
}

bool StreamTimer::IsOver(const CommunicatorTimer& timer, uint64_t now_ns) {
  // Acquire: sees when.
  return timer.state.load(std::memory_order_acquire) == CommunicatorTimer::kRetired &&
         now_ns >= timer.retired_ns.load(std::memory_order_relaxed) + kRetirementNs;
}

void StreamTimer::Destroy(CommunicatorTimer& timer) {
  bool entered = false;
  // Events of a context that has gone went with it.
  if (EnterContext(timer, &entered)) DestroyEvents(timer);
  timer.state.store(CommunicatorTimer::kOff, std::memory_order_release);  // hands the timer back
}

void StreamTimer::DestroyEvents(CommunicatorTimer& timer) {
  const auto destroy = [this](CudaEvent& event) {
    if (event != nullptr) driver_.event_destroy(event);
    event = nullptr;
  };
  for (TimedPair& pair : timer.pairs) {
    destroy(pair.begin);
    destroy(pair.end);
  }
  for (LaunchMarker& marker : timer.markers) destroy(marker.event);
  const auto destroy_shared = [&destroy](std::atomic<CudaEvent>& event) {
    CudaEvent made = event.exchange(nullptr, std::memory_order_relaxed);  // nobody else's any more
    destroy(made);
  };
  for (LaunchGate& gate : timer.gates) {
    destroy(gate.front);
    destroy_shared(gate.behind);
  }
  destroy(timer.newest_gate.front);
  destroy_shared(timer.newest_gate.behind);
  destroy_shared(timer.tail);
}

}  // namespace nccl_pulse
