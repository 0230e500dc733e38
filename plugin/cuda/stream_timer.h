// Times launches on their stream with CUDA events, and knows which launches have completed.
//
//   launching thread, in KernelLaunch            "pulse-poll", every 20 ms while work is in flight
//   ------------------------------------         -----------------------------------------------
//   start: a gate is due? record it              query `end` of each armed pair -> elapsed ->
//          sampled? record `begin`               histogram
//   stop:  sampled? record `end`, arm the pair   query the oldest marker, the next while they are
//          a marker is due? record it            complete, then `tail` -> completed launches,
//          record `tail`                         oldest in flight; nothing completes? query the
//                                                gates -> has the GPU begun the oldest?
//
// NCCL orders the launches of a communicator on the GPU, whatever streams they are made on (2.28,
// src/enqueue.cc: in ncclLaunchPrepare the launch's stream waits for the device stream, in
// ncclLaunchFinish the device stream advances to the launch's end; ncclLaunchKernel, which begins
// with the callback, lies between). So one heartbeat serves all streams of a communicator: an event
// behind a launch, or in front of the next one, is complete only when all launches before it are.
//
// `tail`, without timing, is recorded again after every launch: when it is complete, everything is.
// Under steady load it never is. Therefore markers, a ring of events behind some of the launches:
// at most one a poll, and no more than share the backlog out evenly when the GPU is far behind. The
// oldest marker that is not complete says since when a launch is in flight, right to one poll or an
// eighth of the backlog. Constant memory, two queries a poll in the steady state.
//
// Gates tell the rank whose GPU does not come to a launch (work of the application before it on the
// stream does not end) from those that wait in it. A gate is a pair of events without timing around
// that work: `behind` the launch before, which was its tail and is left as it is, while the next
// tail takes the gate's old event; and `front`, recorded in front of the launch. Is `front`
// complete, the GPU has come to the launch; is `behind` alone, the launch is the oldest in flight
// and has not begun. A gate costs its launch the record and what that brings into the caches, about
// a microsecond, so who is in a hurry has few: a launch has one when the two before it were 200 us
// apart, when none came since the poller last looked, and one in 128 has one anyway; the launching
// thread looks at no clock for it. A ring of them keeps the oldest; while it is full, one more
// stands at the newest launch that had one. They are asked only when nothing has completed for
// 100 ms. An answer that is not certain is none.
//
// A stream in capture is never touched. No event is destroyed while a callback could use it: those
// of a finalized communicator are destroyed by the poller some seconds later, and never when their
// context is no longer the one that they were made in.
//
// Thread: as drawn; Attach and Retire under the runtime's lock. The poller holds nothing that a
// callback waits for; a driver call that blocks blocks the poller alone. Cost on the launching
// thread: one record without timing (0.1 us) a launch, a second one for a gate, two with timing
// (5.8 us) for a sampled one. GPU: nothing for the heartbeat, about 5 us for a sampled launch.
// Errors: a driver call that fails (context destroyed, device lost) switches the communicator's
// timer off for good; its in-flight metrics are then absent.
#ifndef PLUGIN_CUDA_STREAM_TIMER_H_
#define PLUGIN_CUDA_STREAM_TIMER_H_

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "metrics/snapshot.h"
#include "plugin/cuda/cuda_driver.h"

namespace nccl_pulse {

inline constexpr int kTimedPairs = 8;
inline constexpr uint32_t kMarkers = 8;
inline constexpr uint32_t kGates = 8;  // both: powers of two, so that the counts may wrap
// No closer than the poller looks.
inline constexpr uint64_t kMarkerSpacingNs = 20000000;

// A pair of timing events around one launch.
struct TimedPair {
  // kFree -> kTaken -> kArmed (both launching thread) -> kFree (poller); or from kTaken back.
  enum State : uint32_t { kFree = 0, kTaken = 1, kArmed = 2 };
  std::atomic<uint32_t> state;
  std::atomic<uint32_t> calls;  // that were pending when it was launched
  CudaEvent begin, end;
  // Of the pending calls; the OperationMeta is that of the last of them.
  std::atomic<uint64_t> call_meta, call_bytes, call_bus_bytes;
  // Of the operations that the launch turned out to carry (it may be one of several of a group).
  std::atomic<uint64_t> seen, seen_bytes, seen_bus_bytes;
  std::atomic<uint64_t> launch_ns;
};

// An event behind one launch.
struct LaunchMarker {
  CudaEvent event;
  std::atomic<uint64_t> launch;  // its number, from 1
  std::atomic<uint64_t> ns;      // when it was made
};

// Between two launches.
struct LaunchGate {
  CudaEvent front;                // of the later one
  std::atomic<CudaEvent> behind;  // the earlier one
  std::atomic<uint64_t> launch;   // number of the later one
  std::atomic<uint64_t> ns;       // when it was made
};

// One communicator's.
struct alignas(64) CommunicatorTimer {
  // kOff -> kOn (init) -> kRetired (finalize) -> kOff (poller, events destroyed).
  enum State : uint32_t { kOff = 0, kOn = 1, kRetired = 2 };
  std::atomic<uint32_t> state;
  std::atomic<bool> failed;  // any thread: the driver refused a call; nothing is asked of it again
  // Launching thread: in front of the launch that is being made there is no gate, the ring's next
  // one, or `newest_gate`. It counts when the launch has been made: none of one that is given up.
  enum Gate : uint8_t { kNoGate = 0, kRingGate = 1, kNewestGate = 2 };
  std::atomic<uint8_t> gate;
  // Launching thread: all that a launch touches which needs no marker.
  std::atomic<CudaEvent> tail;
  std::atomic<uint64_t> launched;  // `tail` stands behind that many
  std::atomic<uint64_t> last_launch_ns;
  std::atomic<uint64_t> last_marker_ns;
  // Markers in the order of their launches: armed counts those ever recorded (launching thread),
  // cleared those ever seen complete (poller); number i has place i % kMarkers.
  std::atomic<uint32_t> armed_markers;
  std::atomic<uint32_t> armed_gates;  // the same of gates
  // ---- line
  alignas(64) std::atomic<uint32_t> cleared_markers;
  std::atomic<uint64_t> marker_spacing_ns;  // poller
  std::atomic<uint32_t> cleared_gates;      // poller: passed, or their launches are complete
  LaunchMarker markers[kMarkers];
  LaunchGate gates[kGates];
  LaunchGate newest_gate;  // `launch` is 0 while its events are recorded again
  TimedPair pairs[kTimedPairs];
  CudaContext context;
  uint64_t context_id;
  int device;
  std::atomic<uint64_t> retired_ns;
  std::atomic<uint64_t> completed;  // poller
  std::atomic<uint64_t> oldest_ns;  // poller: when the oldest in flight was launched, 0: none
  uint64_t adapted_launches;        // poller: `launched` when sampling was last adapted
  uint64_t seen_launches;           // poller: `launched` when IsQuiet was last asked
  uint64_t begun;                   // poller: number of the newest launch known to have begun
  uint64_t progress_ns;             // poller: when it last saw a completion

  // Whether launches are followed. Acquire: sees the events.
  bool is_on() const {
    return state.load(std::memory_order_acquire) == kOn && !failed.load(std::memory_order_relaxed);
  }
};

static_assert(offsetof(CommunicatorTimer, cleared_markers) == 64);

class StreamTimer {
 public:
  explicit StreamTimer(const CudaDriver& driver) : driver_(driver) {}

  // Init: makes the events in the calling thread's current context; those to time launches with
  // only if asked for. False when there is no context or the driver fails.
  bool Attach(CommunicatorTimer& timer, bool with_pairs);
  // Finalize: no callback begins to use the timer from now on.
  static void Retire(CommunicatorTimer& timer, uint64_t now_ns);

  // Launching thread; NCCL serialises the launches of a communicator.

  // Whether `stream` is in capture. An error switches the timer off.
  bool IsCapturing(CommunicatorTimer& timer, CudaStream stream) {
    int capturing = kCudaNotCapturing;
    const int result = driver_.stream_is_capturing(stream, &capturing);
    if (__builtin_expect(result != kCudaSuccess, 0)) {
      return (result >= kCudaFirstCaptureError && result <= kCudaLastCaptureError) || Fail(timer);
    }
    return capturing != kCudaNotCapturing;  // also one that was invalidated
  }
  // Before a launch: a gate, on a stream that is not in capture.
  [[gnu::cold, gnu::noinline]] void RecordGate(CommunicatorTimer& timer, CudaStream stream,
                                               uint64_t now_ns);
  // The launch in front of which it was recorded is not made.
  static void GiveGateUp(CommunicatorTimer& timer) {
    timer.gate.store(CommunicatorTimer::kNoGate, std::memory_order_relaxed);  // this side's own
  }
  // Before a launch that is to be timed: its pair, null when none is free or the driver fails.
  TimedPair* BeginTiming(CommunicatorTimer& timer, CudaStream stream);
  // After a launch that was timed. False when the pair is lost.
  [[gnu::cold, gnu::noinline]] bool EndPair(CommunicatorTimer& timer, CudaStream stream,
                                            TimedPair& pair, uint64_t now_ns);
  // After each launch, also a timed one.
  void End(CommunicatorTimer& timer, CudaStream stream, uint64_t now_ns) {
    if (__builtin_expect(!timer.is_on(), 0)) return;
    const uint64_t launched = timer.launched.load(std::memory_order_relaxed) + 1;
    const uint64_t last_marker_ns = timer.last_marker_ns.load(std::memory_order_relaxed);
    if (__builtin_expect(now_ns >= last_marker_ns + kMarkerSpacingNs, 0) &&
        !RecordMarker(timer, stream, launched, now_ns)) {
      return;
    }
    const CudaEvent last_tail = timer.tail.load(std::memory_order_relaxed);  // this side's own
    CudaEvent tail = last_tail;
    LaunchGate* const gate = PendingGate(timer);
    if (__builtin_expect(gate != nullptr, 0)) {
      tail = gate->behind.load(std::memory_order_relaxed);  // likewise
    }
    if (__builtin_expect(driver_.event_record(tail, stream) != kCudaSuccess, 0)) {
      Fail(timer);
      return;
    }
    if (__builtin_expect(gate != nullptr, 0)) {
      // Release, after the record: whoever finds this tail finds it behind this launch.
      timer.tail.store(tail, std::memory_order_release);
      EndGate(timer, *gate, last_tail, launched);
    }
    timer.last_launch_ns.store(now_ns, std::memory_order_relaxed);  // published by the count
    // Release, after the record: a poller that reads this number queries a `tail` that stands
    // behind it.
    timer.launched.store(launched, std::memory_order_release);
  }

  // ---- poller ----

  struct Progress {
    uint64_t completed = 0;
    uint64_t oldest_ns = 0;  // when the oldest in flight was launched, 0: none
    bool in_flight = false;  // launches or pairs
    bool advanced = false;   // launches completed since the last look
    OldestLaunch oldest = OldestLaunch::kUnknown;
  };
  // Whether no launch was made since the last look.
  static bool IsQuiet(CommunicatorTimer& timer);
  // `timed(pair, duration_ns)` is called for each finished pair, `lost(pair)` for each that will
  // not be waited for. False when the driver failed: the timer is off from now on.
  template <typename Timed, typename Lost>
  bool Poll(CommunicatorTimer& timer, uint64_t now_ns, Timed timed, Lost lost, Progress* progress) {
    // Acquire: Retire's time.
    const bool retired = timer.state.load(std::memory_order_acquire) == CommunicatorTimer::kRetired;
    bool entered = false;
    for (TimedPair& pair : timer.pairs) {
      // Acquire: sees what the launching thread wrote before it armed the pair.
      if (pair.state.load(std::memory_order_acquire) != TimedPair::kArmed) continue;
      uint64_t duration_ns = 0;
      // How long an operation of an aborted communicator took says nothing.
      PairState state = retired || timer.failed.load(std::memory_order_relaxed)
                            ? PairState::kLost
                            : PollPair(timer, pair, &entered, &duration_ns);
      if (state == PairState::kWaiting) {
        progress->in_flight = true;
        continue;
      }
      if (state == PairState::kDone) {
        timed(pair, duration_ns);
      } else {
        lost(pair);
      }
      pair.state.store(TimedPair::kFree, std::memory_order_release);  // hands the pair back
    }
    // Relaxed: a flag.
    return !timer.failed.load(std::memory_order_relaxed) &&
           PollHeartbeat(timer, now_ns, &entered, progress);
  }
  // Whether a timer was retired so long ago that no callback can use it.
  static bool IsOver(const CommunicatorTimer& timer, uint64_t now_ns);
  // Destroys the events of one that is over, and hands it back to Attach.
  void Destroy(CommunicatorTimer& timer);

 private:
  // A marker behind launch number `launched`, if one is due. False when the driver failed.
  [[gnu::cold, gnu::noinline]] bool RecordMarker(CommunicatorTimer& timer, CudaStream stream,
                                                 uint64_t launched, uint64_t now_ns);
  // The launch with that number has been made, and a new tail stands behind it.
  [[gnu::cold, gnu::noinline]] static void EndGate(CommunicatorTimer& timer, LaunchGate& gate,
                                                   CudaEvent last_tail, uint64_t launched);
  enum class PairState { kWaiting, kDone, kLost };
  PairState PollPair(CommunicatorTimer& timer, TimedPair& pair, bool* entered,
                     uint64_t* duration_ns);
  bool PollHeartbeat(CommunicatorTimer& timer, uint64_t now_ns, bool* entered, Progress* progress);
  // What the gates say.
  struct Front {
    uint64_t completed;       // launches, as far as known; gates may tell of more
    uint64_t begun_ns = 0;    // when launch number `begun` was made, if it is new that it has begun
    uint64_t waiting = 0;     // number of the launch whose gate is not passed, 0: none is known
    uint64_t waiting_ns = 0;  // when it was made
  };
  // `ask`: else those of completed launches are cleared, and nothing else. False when the driver
  // failed.
  bool PollGates(CommunicatorTimer& timer, uint64_t launched, bool ask, Front* front);
  bool AskGate(CommunicatorTimer& timer, const LaunchGate& gate, uint64_t launch, Front* front);
  // The gate of the launch that is being made, null: it has none.
  [[gnu::hot]] static LaunchGate* PendingGate(CommunicatorTimer& timer) {
    // Relaxed: this side's own.
    const uint8_t which = timer.gate.load(std::memory_order_relaxed);
    if (__builtin_expect(which == CommunicatorTimer::kNoGate, 1)) return nullptr;
    if (which == CommunicatorTimer::kNewestGate) return &timer.newest_gate;
    return &timer.gates[timer.armed_gates.load(std::memory_order_relaxed) % kGates];
  }
  bool EnterContext(const CommunicatorTimer& timer, bool* entered);
  void DestroyEvents(CommunicatorTimer& timer);
  // Relaxed: a flag; the record's completion source follows with the next poll.
  [[gnu::cold, gnu::noinline]] static bool Fail(CommunicatorTimer& timer) {
    timer.failed.store(true, std::memory_order_relaxed);
    return false;
  }

  const CudaDriver& driver_;
};

}  // namespace nccl_pulse

#endif  // PLUGIN_CUDA_STREAM_TIMER_H_
