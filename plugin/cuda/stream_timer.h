// Times launches on their stream with CUDA events, and knows which launches have completed.
//
//   launching thread, in KernelLaunch            "pulse-poll", every 20 ms while work is in flight
//   ------------------------------------------   -------------------------------------------------
//   start: a gate is due? record it              query `end` of each armed pair
//          sampled? record `begin`                 -> elapsed time -> histogram
//   stop:  sampled? record `end`, arm the pair   query the oldest marker, the next one while they
//          a marker is due? record it            are complete, then `tail`
//          record `tail`                           -> completed launches, oldest in flight
//                                                nothing completes? query the gates
//                                                  -> has the GPU begun the oldest?
//
// NCCL orders the launches of a communicator on the GPU, whatever streams they are made on (2.28,
// src/enqueue.cc: in ncclLaunchPrepare the launch's stream waits for the device stream, in
// ncclLaunchFinish the device stream advances to the launch's end; ncclLaunchKernel, which begins
// with the callback, lies between). So one heartbeat serves all streams of a communicator: an event
// behind a launch, or in front of the next one, is complete only when all launches before it are.
//
// `tail` is an event without timing that is recorded again after every launch. When it is complete,
// everything before it is. Under steady load it never is, hence the markers: a ring of events behind
// some of the launches, at most one a poll; when the GPU is far behind they share the backlog out evenly.
// The oldest marker that is not complete says since when a launch is in flight, right to one poll
// or an eighth of the backlog. Memory is constant; the steady state takes two queries a poll.
//
// Where NCCL's own counter tells which launches are complete (work_proof.h), a launch in a hurry,
// less than 100 us after the one before, has no tail: an event is half of what a callback costs.
// If its operation is reported next, it has no stop either (launch_follower.h). Markers and gates go
// on, with a tail behind their launches. If the counter is refuted, or is not read for 2 s in which
// this process ran, launches behind a complete tail are OldestLaunch::kUntold: neither complete nor
// in flight, until a tail stands behind them or the counter is read.
//
// Gates tell a rank whose GPU does not come to a launch from those that wait in it: work that the
// application put before it on the stream does not end. A gate is two events without timing around
// that work. `behind` stands behind the launch before: it was that launch's tail and is left as it
// is, and the next tail takes the gate's old event. `front` is recorded in front of the launch.
// Where the launch before has no tail, there is no `behind`, and the counter has to say that it is
// complete.
//
//   `behind`       `front`        the launch
//   not complete   not complete   is not the oldest in flight; nor is the one before complete
//   complete       not complete   is the oldest in flight, and has not begun
//   complete       complete       has begun: the GPU has come to it
//
// A gate costs its launch about a microsecond: the record, and what that brings into the caches. So
// a thread in a hurry has few. A launch has a gate when the two before it were 200 us apart, and so
// have four others after each look of the poller. The launching thread looks at no clock for that.
// A ring keeps the oldest gates; while it is full, one more stands at the newest launch that had
// one. They are asked only when nothing has completed for 100 ms. An answer that is not certain is
// none.
//
// A stream in capture is never touched. No event is destroyed while a callback could use it: those
// of a finalized communicator are destroyed by the poller some seconds later, and never when their
// context is no longer the one that they were made in.
//
// Thread: as drawn; Attach and Retire under the runtime's lock. The poller holds nothing that a
// callback waits for; a driver call that blocks blocks the poller alone. Cost on the launching
// thread: one record without timing (0.1 us) a launch that has a tail, a second one for a gate, two
// with timing (5.8 us) for a sampled one. GPU: nothing for the heartbeat, about 5 us for a sampled
// launch.
// Errors: a driver call that fails (context destroyed, device lost) switches the communicator's
// timer off for good; its in-flight metrics are then absent. The first error is kept. While nothing
// is in flight the tail is asked once a second: a context that is lost answers with the reason.
#ifndef PLUGIN_CUDA_STREAM_TIMER_H_
#define PLUGIN_CUDA_STREAM_TIMER_H_

#include <cstddef>
#include <cstdint>

#include "metrics/atomic_cell.h"
#include "metrics/kinds.h"
#include "plugin/cuda/cuda_driver.h"

namespace nccl_pulse {

inline constexpr uint32_t kTimedPairs = 8;
inline constexpr uint32_t kNoPair = 0xff;
inline constexpr uint32_t kMarkers = 8;
inline constexpr uint32_t kGates = 8;  // both: powers of two, so that the counts may wrap
// No closer than the poller looks.
inline constexpr uint64_t kMarkerSpacingNs = 20000000;
inline constexpr uint64_t kHurryNs = 100000;
inline constexpr uint64_t kPauseNs = 200000;

// A pair of timing events around one launch. What it stands for is its user's, by its index.
struct TimedPair {
  // kFree -> kTaken -> kArmed (both launching thread) -> kFree (poller); or from kTaken back.
  enum State : uint32_t { kFree = 0, kTaken = 1, kArmed = 2 };
  Ordered<uint32_t> state;
  CudaEvent begin, end;
  Relaxed<uint64_t> launch_ns;
};

// An event behind one launch.
struct LaunchMarker {
  CudaEvent event;
  Relaxed<uint64_t> launch;  // its number, from 1
  Relaxed<uint64_t> ns;      // when it was made
};

// Between two launches.
struct LaunchGate {
  CudaEvent front;            // of the later one
  Relaxed<CudaEvent> behind;  // the earlier one; see gates_without_behind_
  Ordered<uint64_t> launch;   // number of the later one
  Relaxed<uint64_t> ns;       // when it was made
};

// NCCL's counter says this of the launches of a communicator.
struct CountedLaunches {
  uint64_t completed = 0;
  uint64_t counted_ns = 0;  // when; 0: there is no counter that is proven
};

// One communicator's. Zeroes are its initial state. Where it stands, a cache line begins.
class CommunicatorTimer {
 public:
  // kOff -> kOn (init) -> kRetired (finalize) -> kOff (poller, events destroyed).
  enum State : uint32_t { kOff = 0, kOn = 1, kRetired = 2 };

  // Whether launches are followed. Acquire: sees the events.
  bool is_on() const { return state_.acquire() == kOn && !failed_.load(); }
  // Acquire: sees the events, and that the poller has finished with the last communicator's.
  State state() const { return static_cast<State>(state_.acquire()); }
  // Launching thread. True if launches in a hurry need no event behind them (StreamTimer).
  bool is_counted() const { return is_counted_.load(); }
  // What the driver answered when it first refused a call; 0: it has not.
  uint32_t error() const { return error_.load(); }
  int device() const { return device_; }
  // Launching thread. From now on some launches may not count, or NCCL may not report them: each has
  // a tail, and the counter tells of those before alone.
  [[gnu::cold, gnu::noinline]] void StopCounting() {
    may_not_count_.store(true);
    // With the one in SetCounted: either that thread finds `may_not_count_`, or this store is last.
    std::atomic_thread_fence(std::memory_order_seq_cst);
    is_counted_.store(false);
  }
  // Launches that are complete by events alone. Any thread.
  uint64_t completed_by_events() const { return by_events_.load(); }

 private:
  friend class StreamTimer;
  // Launching thread: in front of the launch that is being made there is no gate, the ring's next
  // one, or `newest_gate_`. It counts when the launch has been made: none of one that is given up.
  enum Gate : uint8_t { kNoGate = 0, kRingGate = 1, kNewestGate = 2 };

  Ordered<uint32_t> state_;
  Relaxed<bool> failed_;  // any thread: the driver refused a call; nothing is asked of it again
  Relaxed<uint8_t> gate_;
  Relaxed<bool> is_counted_;  // poller, and who stops that: a launch in a hurry needs no tail
  // Launching thread: all that a launch touches which needs no marker.
  Ordered<CudaEvent> tail_;
  Ordered<uint64_t> tail_launch_;  // `tail_` stands behind that many
  Ordered<uint64_t> launched_;
  Relaxed<uint64_t> last_launch_ns_;
  Relaxed<uint64_t> last_marker_ns_;
  // Markers in the order of their launches: armed counts those ever recorded (launching thread),
  // cleared those ever seen complete (poller); number i has place i % kMarkers.
  Ordered<uint32_t> armed_markers_;
  Ordered<uint32_t> armed_gates_;  // the same of gates
  uint64_t unused_;
  // ---- line
  Ordered<uint32_t> cleared_markers_;
  Relaxed<uint32_t> gates_without_behind_;  // launching thread: a bit for each, BitOf
  Relaxed<uint64_t> marker_spacing_ns_;     // poller
  Ordered<uint32_t> cleared_gates_;         // poller: passed, or their launches are complete
  LaunchMarker markers_[kMarkers];
  LaunchGate gates_[kGates];
  LaunchGate newest_gate_;  // `launch` is 0 while its events are recorded again
  TimedPair pairs_[kTimedPairs];
  CudaContext context_;
  uint64_t context_id_;
  int device_;
  Relaxed<uint32_t> error_;  // any thread: what it answered then, 0: nothing, or the context went
  Relaxed<uint64_t> retired_ns_;
  Relaxed<uint64_t> completed_;  // poller
  Relaxed<uint64_t> by_events_;  // poller
  Relaxed<uint64_t> oldest_ns_;  // poller: when the oldest in flight was launched, 0: none
  uint64_t taken_launches_;      // poller: `launched_` at the last TakeLaunches
  uint64_t begun_;               // poller: number of the newest launch known to have begun
  uint64_t progress_ns_;         // poller: when it last saw a completion
  uint64_t asked_idle_ns_;       // poller: when it last asked with nothing in flight
  // Poller: the last CountedLaunches::counted_ns, for how long no newer one came while this process
  // ran, and the last look.
  uint64_t counted_ns_;
  uint64_t uncounted_for_ns_;
  uint64_t looked_ns_;
  Relaxed<bool> may_not_count_;  // launching thread: StopCounting

  // Poller.
  void SetCounted(bool is_counted);
  // Poller. Returns for how long the counter has told nothing.
  uint64_t UncountedFor(const CountedLaunches& counted, uint64_t now_ns);
  uint32_t BitOf(const LaunchGate& gate) const {
    return 1u << (&gate == &newest_gate_ ? kGates : static_cast<uint32_t>(&gate - gates_));
  }
  static void CheckLayout();
};

inline void CommunicatorTimer::CheckLayout() {
  static_assert(offsetof(CommunicatorTimer, cleared_markers_) == 64);
}

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
      return (result >= kCudaFirstCaptureError && result <= kCudaLastCaptureError) ||
             Fail(timer, result);
    }
    return capturing != kCudaNotCapturing;  // also one that was invalidated
  }
  // Whether `stream` is one of the timer's context: the handles 0 to 2 are streams of whichever
  // context is current. NCCL makes its own current around a launch, and nowhere else.
  bool IsReachable(const CommunicatorTimer& timer, CudaStream stream) const {
    constexpr uintptr_t kLastOfCurrentContext = 2;
    if (reinterpret_cast<uintptr_t>(stream) > kLastOfCurrentContext) return true;
    CudaContext current = nullptr;
    return driver_.context_get_current(&current) == kCudaSuccess && current == timer.context_;
  }
  // Before a launch: a gate, on a stream that is not in capture.
  [[gnu::cold, gnu::noinline]] void RecordGate(CommunicatorTimer& timer, CudaStream stream,
                                               uint64_t now_ns);
  // The launch in front of which it was recorded is not made.
  static void GiveGateUp(CommunicatorTimer& timer) {
    timer.gate_.store(CommunicatorTimer::kNoGate);
  }
  // Before a launch that is to be timed: its pair's index, kNoPair when none is free or the driver
  // fails. What the caller stores for the pair until EndPair, Results finds.
  uint32_t BeginTiming(CommunicatorTimer& timer, CudaStream stream);
  // After a launch that was timed. False when the pair is lost.
  [[gnu::cold, gnu::noinline]] bool EndPair(CommunicatorTimer& timer, CudaStream stream,
                                            uint32_t pair, uint64_t now_ns);
  // The launch that was to be timed is not made.
  static void GivePairUp(CommunicatorTimer& timer, uint32_t pair) {
    timer.pairs_[pair].state.store(TimedPair::kFree);
  }
  // After each launch, also a timed one. `may_count()`: its work may be part of NCCL's counter.
  template <typename MayCount>
  void End(CommunicatorTimer& timer, CudaStream stream, uint64_t now_ns, MayCount may_count) {
    if (__builtin_expect(!timer.is_on(), 0)) return;
    const uint64_t launched = timer.launched_.load() + 1;
    if (__builtin_expect(NeedsMore(timer, now_ns), 0)) {
      return EndWithMore(timer, stream, launched, now_ns);
    }
    if (timer.is_counted_.load() && IsInAHurry(timer, now_ns) && may_count()) {
      return CountLaunch(timer, launched, now_ns);
    }
    if (!RecordTail(timer, timer.tail_.load(), stream)) return;
    CountTail(timer, launched);
    CountLaunch(timer, launched, now_ns);
  }

  // A launch of one that is_counted begins. True: it is in a hurry, so nothing is to be recorded
  // behind it, and EndHurried takes the place of End. Relaxed: the poller takes a time that is not
  // counted yet for that of the launch before, which it is by less than kHurryNs.
  static bool BeginHurried(CommunicatorTimer& timer, uint64_t now_ns) {
    if (__builtin_expect(!IsInAHurry(timer, now_ns) || NeedsMore(timer, now_ns), 0)) {
      return false;
    }
    timer.last_launch_ns_.store(now_ns);
    return true;
  }
  // True if a launch at `now_ns` comes after a pause: it may be the first of a step.
  static bool ComesAfterPause(const CommunicatorTimer& timer, uint64_t now_ns) {
    return now_ns >= timer.last_launch_ns_.load() + kPauseNs;
  }
  // It has been made. Returns when it began.
  static uint64_t EndHurried(CommunicatorTimer& timer) {
    timer.launched_.publish_sum(1);  // with its time
    return timer.last_launch_ns_.load();
  }

  // ---- poller ----

  struct Progress {
    uint64_t completed = 0;
    uint64_t oldest_ns = 0;    // when the oldest in flight was launched, 0: none
    uint64_t progress_ns = 0;  // when a completion was last seen
    bool in_flight = false;    // launches or pairs; not those that are kUntold
    bool advanced = false;     // launches completed since the last look
    OldestLaunch oldest = OldestLaunch::kUnknown;
    bool is_at_oldest = false;  // of kBegun: it is known not to be complete
  };
  // What became of the launches that were timed.
  class Results {
   public:
    virtual void OnTimed(uint32_t pair, uint64_t launch_ns, uint64_t duration_ns) = 0;
    // It will not be waited for.
    virtual void OnLost(uint32_t pair) = 0;

   protected:
    ~Results() = default;
  };
  // One of `results` for each pair that is finished. False when the driver failed: the timer is off
  // from now on.
  bool Poll(CommunicatorTimer& timer, const CountedLaunches& counted, uint64_t now_ns,
            Results& results, Progress* progress);
  // Launches since the last call.
  static uint64_t TakeLaunches(CommunicatorTimer& timer);
  // Whether a timer was retired so long ago that no callback can use it.
  static bool IsOver(const CommunicatorTimer& timer, uint64_t now_ns);
  // Destroys the events of one that is over, and hands it back to Attach.
  void Destroy(CommunicatorTimer& timer);

 private:
  // The same where a marker may be due, or a gate stands in front of the launch.
  [[gnu::cold, gnu::noinline]] void EndWithMore(CommunicatorTimer& timer, CudaStream stream,
                                                uint64_t launched, uint64_t now_ns);
  // False when the driver failed.
  bool RecordTail(CommunicatorTimer& timer, CudaEvent tail, CudaStream stream) {
    const int result = driver_.event_record(tail, stream);
    return __builtin_expect(result == kCudaSuccess, 1) || Fail(timer, result);
  }
  // `tail_` stands behind that many launches.
  static void CountTail(CommunicatorTimer& timer, uint64_t launched) {
    // A poller that reads this number queries a `tail_` that stands behind it.
    timer.tail_launch_.publish(launched);
  }
  static bool IsMarkerDue(const CommunicatorTimer& timer, uint64_t now_ns) {
    return now_ns >= timer.last_marker_ns_.load() + kMarkerSpacingNs;
  }
  // More than a tail stands behind the next launch, or a gate in front of it.
  static bool NeedsMore(const CommunicatorTimer& timer, uint64_t now_ns) {
    return IsMarkerDue(timer, now_ns) || timer.gate_.load() != CommunicatorTimer::kNoGate;
  }
  static bool IsInAHurry(const CommunicatorTimer& timer, uint64_t now_ns) {
    return now_ns < timer.last_launch_ns_.load() + kHurryNs;
  }
  static void CountLaunch(CommunicatorTimer& timer, uint64_t launched, uint64_t now_ns) {
    timer.last_launch_ns_.store(now_ns);  // published by the count
    timer.launched_.publish(launched);    // with the tail behind it, if it has one
  }
  // A marker behind launch number `launched`, if one is due. False when the driver failed.
  bool RecordMarker(CommunicatorTimer& timer, CudaStream stream, uint64_t launched,
                    uint64_t now_ns);
  // The launch with that number has been made, and a new tail stands behind it. `last_tail`: null if
  // the launch before has none.
  static void EndGate(CommunicatorTimer& timer, LaunchGate& gate, CudaEvent last_tail,
                      uint64_t launched);
  enum class PairState { kWaiting, kDone, kLost };
  PairState PollPair(CommunicatorTimer& timer, TimedPair& pair, bool* entered,
                     uint64_t* duration_ns);
  bool PollHeartbeat(CommunicatorTimer& timer, const CountedLaunches& counted, uint64_t now_ns,
                     bool* entered, Progress* progress);
  // What the gates say.
  struct Front {
    uint64_t completed;       // launches, as far as known; gates may tell of more
    uint64_t begun_ns = 0;    // when launch number `begun` was made, if it is new that it has begun
    uint64_t waiting = 0;     // number of the launch whose gate is not passed, 0: none is known
    uint64_t waiting_ns = 0;  // when it was made
    uint64_t standing = 0;    // number of a launch that is not complete, 0: none is known
  };
  // `ask`: else those of completed launches are cleared, and nothing else. False when the driver
  // failed.
  bool PollGates(CommunicatorTimer& timer, uint64_t launched, bool ask, Front* front);
  // What the driver answers, if that is an error; else kCudaSuccess.
  int AskGate(CommunicatorTimer& timer, const LaunchGate& gate, uint64_t launch, Front* front);
  // The gate of the launch that is being made, null: it has none.
  [[gnu::hot]] static LaunchGate* PendingGate(CommunicatorTimer& timer) {
    const uint8_t which = timer.gate_.load();
    if (__builtin_expect(which == CommunicatorTimer::kNoGate, 1)) return nullptr;
    if (which == CommunicatorTimer::kNewestGate) return &timer.newest_gate_;
    return &timer.gates_[timer.armed_gates_.load() % kGates];
  }
  // kCudaSuccess, or why not: kCudaInvalidContext when it is another one by now.
  int Enter(const CommunicatorTimer& timer, bool* entered);
  // With nothing in flight: false when the context is lost.
  bool AskIdle(CommunicatorTimer& timer, uint64_t now_ns, bool* entered);
  void DestroyEvents(CommunicatorTimer& timer);
  // The record's completion source follows with the next poll. Two threads at once may each find
  // the other's error missing: either is the first.
  [[gnu::cold, gnu::noinline]] static bool Fail(CommunicatorTimer& timer, int error) {
    if (timer.error_.load() == 0) timer.error_.store(static_cast<uint32_t>(error));
    timer.failed_.store(true);
    timer.is_counted_.store(false);
    return false;
  }

  const CudaDriver& driver_;
};

}  // namespace nccl_pulse

#endif  // PLUGIN_CUDA_STREAM_TIMER_H_
