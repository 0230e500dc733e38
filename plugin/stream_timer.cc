#include "plugin/stream_timer.h"

namespace nccl_pulse {
namespace {

// A callback that was running when its communicator was finalized has long ended after this.
constexpr uint64_t kRetirementNs = 5000000000;

}  // namespace

bool StreamTimer::Attach(CommunicatorTimer& timer) {
  CudaContext context = nullptr;
  if (timer.state.load(std::memory_order_acquire) != CommunicatorTimer::kOff) return false;
  if (driver_.context_get_current(&context) != kCudaSuccess || context == nullptr) return false;
  if (driver_.context_get_device(&timer.device) != kCudaSuccess) return false;
  timer.context = context;
  bool made = true;
  for (TimedPair& pair : timer.pairs) {
    made = made && driver_.event_create(&pair.begin, kCudaEventTiming) == kCudaSuccess &&
           driver_.event_create(&pair.end, kCudaEventTiming) == kCudaSuccess;
    pair.state.store(TimedPair::kFree, std::memory_order_relaxed);
  }
  for (StreamHeartbeat& stream : timer.streams) {
    made = made && driver_.event_create(&stream.tail, kCudaEventWithoutTiming) == kCudaSuccess &&
           driver_.event_create(&stream.marker, kCudaEventWithoutTiming) == kCudaSuccess;
    stream.in_use.store(false, std::memory_order_relaxed);
    stream.launched.store(0, std::memory_order_relaxed);
    stream.completed.store(0, std::memory_order_relaxed);
    stream.marker_armed.store(0, std::memory_order_relaxed);
    stream.oldest_ns.store(0, std::memory_order_relaxed);
  }
  timer.untracked_launches.store(0, std::memory_order_relaxed);
  if (!made) {
    DestroyEvents(timer);
    return false;
  }
  timer.state.store(CommunicatorTimer::kOn, std::memory_order_release);  // publishes the events
  return true;
}

void StreamTimer::Retire(CommunicatorTimer& timer, uint64_t now_ns) {
  timer.retired_ns.store(now_ns, std::memory_order_relaxed);  // published by the state
  uint32_t state = timer.state.load(std::memory_order_relaxed);
  // Compare-and-swap: the poller may be declaring the timer failed.
  while (state != CommunicatorTimer::kOff &&
         !timer.state.compare_exchange_weak(state, CommunicatorTimer::kRetired,
                                            std::memory_order_release, std::memory_order_relaxed)) {
  }
}

StreamHeartbeat* StreamTimer::FindStream(CommunicatorTimer& timer, CudaStream stream) {
  // One launching thread at a time: NCCL serialises the calls of a communicator.
  StreamHeartbeat* idle = nullptr;
  for (StreamHeartbeat& heartbeat : timer.streams) {
    const bool in_use = heartbeat.in_use.load(std::memory_order_relaxed);
    if (in_use && heartbeat.stream.load(std::memory_order_relaxed) == stream) return &heartbeat;
    // A stream whose launches have all completed may make room for another.
    if (idle == nullptr && (!in_use || heartbeat.completed.load(std::memory_order_acquire) ==
                                           heartbeat.launched.load(std::memory_order_relaxed))) {
      idle = &heartbeat;
    }
  }
  if (idle == nullptr) return nullptr;
  idle->stream.store(stream, std::memory_order_relaxed);  // only this side reads it
  idle->in_use.store(true, std::memory_order_release);
  return idle;
}

StreamState StreamTimer::Begin(CommunicatorTimer& timer, CudaStream stream, bool sample,
                               LaunchMark* mark) {
  int capturing = kCudaNotCapturing;
  // An error says that the stream can not be asked now (another capture in global mode on the
  // legacy stream, say): hands off.
  if (driver_.stream_is_capturing(stream, &capturing) != kCudaSuccess ||
      capturing != kCudaNotCapturing) {
    return StreamState::kCapturing;
  }
  StreamHeartbeat* heartbeat = FindStream(timer, stream);
  if (heartbeat == nullptr) {
    timer.untracked_launches.fetch_add(1, std::memory_order_relaxed);  // a rare path
    return StreamState::kUntracked;
  }
  mark->stream = static_cast<uint8_t>(heartbeat - timer.streams);
  if (!sample) return StreamState::kTracked;
  for (TimedPair& pair : timer.pairs) {
    // Acquire: the poller has finished with the pair.
    if (pair.state.load(std::memory_order_acquire) != TimedPair::kFree) continue;
    if (driver_.event_record(pair.begin, stream) != kCudaSuccess) break;
    pair.state.store(TimedPair::kTaken, std::memory_order_relaxed);  // of use to this side only
    pair.seen.store(0, std::memory_order_relaxed);
    pair.seen_bytes.store(0, std::memory_order_relaxed);
    pair.seen_bus_bytes.store(0, std::memory_order_relaxed);
    mark->pair = static_cast<uint8_t>(&pair - timer.pairs);
    break;
  }
  return StreamState::kTracked;
}

void StreamTimer::End(CommunicatorTimer& timer, LaunchMark mark, uint64_t now_ns) {
  if (mark.stream >= kStreams) return;
  StreamHeartbeat& heartbeat = timer.streams[mark.stream];
  CudaStream stream = heartbeat.stream.load(std::memory_order_relaxed);
  if (mark.pair < kTimedPairs) {
    TimedPair& pair = timer.pairs[mark.pair];
    if (pair.state.load(std::memory_order_relaxed) == TimedPair::kTaken) {
      pair.launch_ns.store(now_ns, std::memory_order_relaxed);
      const bool recorded = driver_.event_record(pair.end, stream) == kCudaSuccess;
      // Release: the poller sees everything about the pair.
      pair.state.store(recorded ? TimedPair::kArmed : TimedPair::kFree, std::memory_order_release);
    }
  }
  const uint64_t launched = heartbeat.launched.load(std::memory_order_relaxed) + 1;
  heartbeat.last_launch_ns.store(now_ns, std::memory_order_relaxed);
  // Acquire: the poller is done with the marker's last record.
  if (heartbeat.marker_armed.load(std::memory_order_acquire) == 0 &&
      driver_.event_record(heartbeat.marker, stream) == kCudaSuccess) {
    heartbeat.marker_launch.store(launched, std::memory_order_relaxed);
    heartbeat.marker_ns.store(now_ns, std::memory_order_relaxed);
    heartbeat.marker_armed.store(1, std::memory_order_release);  // publishes the two
  }
  if (driver_.event_record(heartbeat.tail, stream) == kCudaSuccess) {
    // Release, after the record: a poller that reads this number queries a `tail` that stands
    // behind it.
    heartbeat.launched.store(launched, std::memory_order_release);
  }
}

bool StreamTimer::PollStream(StreamHeartbeat& stream, Progress* progress) {
  if (!stream.in_use.load(std::memory_order_acquire)) return true;
  const uint64_t launched = stream.launched.load(std::memory_order_acquire);
  const uint64_t last_launch_ns = stream.last_launch_ns.load(std::memory_order_relaxed);
  const uint64_t completed_before = stream.completed.load(std::memory_order_relaxed);
  uint64_t completed = completed_before;
  uint64_t armed_ns = 0;  // launch time behind which the marker still waits
  if (completed < launched) {
    if (stream.marker_armed.load(std::memory_order_acquire) != 0) {
      const int result = driver_.event_query(stream.marker);
      if (result == kCudaSuccess) {
        const uint64_t marker_launch = stream.marker_launch.load(std::memory_order_relaxed);
        if (marker_launch > completed) completed = marker_launch;
        stream.marker_armed.store(0,
                                  std::memory_order_release);  // the launching thread may record it
      } else if (result == kCudaNotReady) {
        armed_ns = stream.marker_ns.load(std::memory_order_relaxed);
      } else {
        return false;
      }
    }
    // While an earlier marker waits, the tail can not be complete.
    if (armed_ns == 0) {
      const int result = driver_.event_query(stream.tail);
      if (result == kCudaSuccess) {
        if (launched > completed) completed = launched;
      } else if (result != kCudaNotReady) {
        return false;
      }
    }
  }
  uint64_t oldest_ns = 0;
  if (completed < launched) {
    const uint64_t known_ns = stream.oldest_ns.load(std::memory_order_relaxed);
    // Nothing completed since the last look: what was the oldest still is. Else the marker's launch
    // is; and without a marker that waits, the newest launch seen, at most one poll younger than
    // the oldest.
    oldest_ns = known_ns != 0 && completed == completed_before ? known_ns
                : armed_ns != 0                                ? armed_ns
                                                               : last_launch_ns;
  }
  stream.oldest_ns.store(oldest_ns, std::memory_order_relaxed);
  stream.completed.store(completed, std::memory_order_release);
  progress->launched += launched;
  progress->completed += completed;
  if (oldest_ns != 0 && (progress->oldest_ns == 0 || oldest_ns < progress->oldest_ns)) {
    progress->oldest_ns = oldest_ns;
  }
  return true;
}

bool StreamTimer::EnterContext(CommunicatorTimer& timer) {
  if (timer.context == entered_) return true;
  if (driver_.context_set_current(timer.context) != kCudaSuccess) return false;
  entered_ = timer.context;
  return true;
}

bool StreamTimer::Fail(CommunicatorTimer& timer) {
  uint32_t on = CommunicatorTimer::kOn;
  // Compare-and-swap: finalize may be retiring it. Relaxed: a flag.
  timer.state.compare_exchange_strong(on, CommunicatorTimer::kFailed, std::memory_order_relaxed);
  return false;
}

void StreamTimer::DestroyRetired(CommunicatorTimer& timer, uint64_t now_ns) {
  if (timer.state.load(std::memory_order_acquire) != CommunicatorTimer::kRetired) return;
  if (now_ns < timer.retired_ns.load(std::memory_order_relaxed) + kRetirementNs) return;
  if (EnterContext(timer)) DestroyEvents(timer);
  timer.state.store(CommunicatorTimer::kOff, std::memory_order_release);
}

void StreamTimer::DestroyEvents(CommunicatorTimer& timer) {
  const auto destroy = [this](CudaEvent& event) {
    if (event != nullptr)
      driver_.event_destroy(event);  // fails harmlessly when the context is gone
    event = nullptr;
  };
  for (TimedPair& pair : timer.pairs) {
    destroy(pair.begin);
    destroy(pair.end);
  }
  for (StreamHeartbeat& stream : timer.streams) {
    destroy(stream.tail);
    destroy(stream.marker);
  }
}

}  // namespace nccl_pulse
