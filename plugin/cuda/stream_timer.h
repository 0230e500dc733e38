// StreamTimer times launches on their stream with CUDA events, and finds completed launches. Only
// the events of a pair have timing:
//
//   pair     `begin` and `end`, around a sampled launch, measure its duration
//   tail     recorded again behind almost every launch; completes after all launches before it
//   marker   behind some of the launches; the oldest incomplete marker dates the work in flight
//   gate     two events between two launches; they show whether the GPU has reached the later one
//
//   launching thread, in KernelLaunch            "pulse-poll", every 20 ms while work is in flight
//   ------------------------------------------   -------------------------------------------------
//   start: a gate is due? record it              query `end` of each recorded pair
//          sampled? record `begin`                 -> elapsed time -> histogram
//   stop:  sampled? record `end`                 query markers from the oldest one until one is
//          a marker is due? record it            not complete; if all are, query the tail
//          record the tail                         -> completed launches, oldest in flight
//                                                nothing completes? query the gates
//                                                  -> has the GPU begun the oldest?
//
// NCCL orders the launches of a communicator on the GPU, whatever streams they are made on (2.28,
// src/enqueue.cc: in ncclLaunchPrepare the launch's stream waits for the device stream, in
// ncclLaunchFinish the device stream advances to the launch's end; ncclLaunchKernel, which begins
// with the callback, lies between). So the same events serve all streams of a communicator: an
// event behind a launch, or in front of the next one, completes only after all earlier launches.
//
// Under steady load the tail is never complete, hence the markers. At most one is recorded per
// poll, and fewer if the GPU is far behind: the ring of kMarkers events is spread evenly over the
// backlog. So the oldest incomplete marker dates the oldest launch in flight to within one poll, or
// an eighth of the backlog. In the steady state a poll takes two queries.
//
// If NCCL's own counter of finished work is proven (work_proof.h), a "hurried" launch, less than
// 100 us after the previous one, has no tail: an event is half of a callback's cost. If its
// operation is reported next, it gets no ticket, and so no stop callback (launch_follower.h). Launches
// with markers or gates keep their tail. If the counter is refuted, or is not read for 2 s of this
// process' running time, launches after a complete last tail are OldestLaunch::kUntold: their state
// is unknown until a later tail completes or the counter is read again.
//
// Gates distinguish a rank whose GPU does not reach a launch, because of the application's earlier
// work on the stream, from ranks that wait in the launch. The two events of a gate are around that
// earlier work. `front` is recorded in front of the launch. `behind` takes over the event of the
// previous launch's tail; the gate's old event becomes the new tail. If the previous
// launch has no tail, there is no `behind`; only the counter shows whether it is complete.
//
//   `behind`       `front`        the launch
//   not complete   not complete   is not the oldest in flight: the previous one is not complete
//   complete       not complete   is the oldest in flight, and has not begun
//   complete       complete       has begun: the GPU has reached it
//
// A gate costs its launch about a microsecond: recording an event, and touching its cache lines. So
// only some launches get one: launches at least 200 us after the previous launch, and four others
// after each poll. A ring keeps the oldest gates. While it is full, each new gate replaces the last
// one in `newest_gate_`. Gates are queried only when nothing has completed for 100 ms. An uncertain
// answer is not used.
//
// No event is recorded on a stream in capture. No event is destroyed while a callback could use it:
// the poller destroys the events of a finalized communicator some seconds later, once no callback
// is left (metrics/visit.h), and not at all if their context has been replaced.
//
// Thread: as drawn; Attach and Retire under the runtime's lock. Callbacks never wait for the
// poller, so a blocking driver call blocks only the poller. Cost on the launching thread: one
// record without timing (0.1 us) per launch with a tail, a second one per gate, two with timing
// (5.8 us) per sampled launch. Cost on the GPU: about 5 us per sampled launch, otherwise nothing.
// Errors: a failed driver call (context destroyed, device lost) switches the communicator's timer
// off for good; metrics of its work in flight are then absent. The first error is kept. While
// nothing is in flight, the tail is queried once a second: if the context is lost, the query
// returns the reason.
#ifndef PLUGIN_CUDA_STREAM_TIMER_H_
#define PLUGIN_CUDA_STREAM_TIMER_H_

#include <cstddef>
#include <cstdint>

#include "metrics/atomic_cell.h"
#include "metrics/kinds.h"
#include "plugin/cuda/cuda_driver.h"

namespace nccl_pulse {

// Events of each kind per communicator.
inline constexpr uint32_t kTimedPairs = 8;
inline constexpr uint32_t kNoPair = 0xff;
inline constexpr uint32_t kMarkers = 8;
inline constexpr uint32_t kGates = 8;  // a power of two, like kMarkers: counters may wrap
inline constexpr uint64_t kMarkerSpacingNs = 20000000;  // the poller's period
inline constexpr uint64_t kHurryNs = 100000;  // a launch sooner after the previous one is hurried
inline constexpr uint64_t kPauseNs = 200000;  // a launch after a longer pause has a gate

// A pair of timing events around one launch. Its user (timed_launches.h) keeps data of the launch
// under the pair's index.
struct TimedPair {
  // kFree -> kTaken (`begin` recorded) -> kArmed (`end` recorded) by the launching thread, then
  // -> kFree by the poller. A launch that is not made: kTaken -> kFree.
  enum State : uint32_t { kFree = 0, kTaken = 1, kArmed = 2 };
  Ordered<uint32_t> state;
  CudaEvent begin, end;
  Relaxed<uint64_t> launch_ns;
};

// An event behind one launch.
struct LaunchMarker {
  CudaEvent event;
  Relaxed<uint64_t> launch;  // number of the launch, from 1
  Relaxed<uint64_t> ns;      // time of the launch
};

// Events between two launches.
struct LaunchGate {
  CudaEvent front;            // in front of the later launch
  Relaxed<CudaEvent> behind;  // behind the earlier launch; unused if in gates_without_behind_
  Ordered<uint64_t> launch;   // number of the later launch
  Relaxed<uint64_t> ns;       // time of the later launch
};

// Number of a communicator's completed launches according to NCCL's counter.
struct CountedLaunches {
  uint64_t completed = 0;
  uint64_t counted_ns = 0;  // time of the count; 0: no proven counter
};

// A communicator's events and their state. Its initial state is all zeros. Begins a cache line.
class CommunicatorTimer {
 public:
  // kOff -> kOn (init) -> kRetired (finalize) -> kOff (poller, events destroyed).
  enum State : uint32_t { kOff = 0, kOn = 1, kRetired = 2 };

  // True if launches are followed. Acquire: sees the events.
  bool is_on() const { return state_.acquire() == kOn && !failed_.load(); }
  // Acquire: sees the events, and that the poller has destroyed the last communicator's events.
  State state() const { return static_cast<State>(state_.acquire()); }
  // Launching thread. True if hurried launches need no event behind them (StreamTimer).
  bool is_counted() const { return is_counted_.load(); }
  // Returns the driver's first error; 0: none.
  uint32_t error() const { return error_.load(); }
  int device() const { return device_; }
  // Launching thread. Call when NCCL's counter may miss launches from now on: each launch then has
  // a tail, and the counter is used only for earlier launches.
  [[gnu::cold, gnu::noinline]] void StopCounting() {
    may_not_count_.store(true);
    // Pairs with the fence in SetCounted: either that thread finds `may_not_count_`, or this store
    // is the last.
    std::atomic_thread_fence(std::memory_order_seq_cst);
    is_counted_.store(false);
  }
  // Returns the number of launches that events show to be complete. Any thread.
  uint64_t completed_by_events() const { return by_events_.load(); }

 private:
  friend class StreamTimer;
  // The gate that was recorded before the current launch: none, the ring's next gate, or
  // `newest_gate_`. It gets the launch's number when the launch is made, and is dropped if the
  // launch is given up. Used by the launching thread.
  enum Gate : uint8_t { kNoGate = 0, kRingGate = 1, kNewestGate = 2 };

  Ordered<uint32_t> state_;
  // Comments name the threads that write a field.
  Relaxed<bool> failed_;      // any thread: the driver refused a call, and is not called again
  Relaxed<uint8_t> gate_;     // launching thread: Gate
  Relaxed<bool> is_counted_;  // poller, StopCounting, Fail: hurried launches need no tail
  // Launching thread: all fields that it needs for a launch without a marker.
  Ordered<CudaEvent> tail_;
  Ordered<uint64_t> tail_launch_;  // number of the last launch before `tail_`
  Ordered<uint64_t> launched_;     // number of launches
  Relaxed<uint64_t> last_launch_ns_;
  Relaxed<uint64_t> last_marker_ns_;
  // Markers recorded so far (launching thread). `cleared_markers_` of them are complete (poller).
  // Marker number i is markers_[i % kMarkers].
  Ordered<uint32_t> armed_markers_;
  Ordered<uint32_t> armed_gates_;  // likewise, for gates
  uint64_t unused_;
  // ---- second cache line
  Ordered<uint32_t> cleared_markers_;
  Relaxed<uint32_t> gates_without_behind_;  // launching thread: a bit for each gate, BitOf
  Relaxed<uint64_t> marker_spacing_ns_;     // poller: least time between two markers
  Ordered<uint32_t> cleared_gates_;         // poller: passed, or their launches are complete
  LaunchMarker markers_[kMarkers];
  LaunchGate gates_[kGates];
  LaunchGate newest_gate_;  // `launch` is 0 while its events are recorded again
  TimedPair pairs_[kTimedPairs];
  CudaContext context_;
  uint64_t context_id_;
  int device_;
  Relaxed<uint32_t> error_;  // any thread: the driver's first error; 0: none
  Relaxed<uint64_t> retired_ns_;
  Relaxed<uint64_t> completed_;  // poller: number of launches known to be complete
  Relaxed<uint64_t> by_events_;  // poller: number of launches complete according to events
  Relaxed<uint64_t> oldest_ns_;  // poller: time of the oldest launch in flight, 0: none
  uint64_t taken_launches_;      // poller: `launched_` at the last TakeLaunches
  uint64_t begun_;               // poller: number of the newest launch known to have begun
  uint64_t progress_ns_;         // poller: last poll that saw a completion
  uint64_t asked_idle_ns_;       // poller: last query with nothing in flight
  uint64_t counted_ns_;          // poller: the last CountedLaunches::counted_ns
  uint64_t uncounted_for_ns_;    // poller: running time of the process since that changed
  uint64_t looked_ns_;           // poller: time of the last poll
  Relaxed<bool> may_not_count_;  // launching thread: StopCounting was called

  // Called by the poller. Sets is_counted_, unless StopCounting was called.
  void SetCounted(bool is_counted);
  // Called by the poller. Returns for how long the counter has not been read.
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

  // Call in init. Creates the events in the calling thread's current context; timing events only if
  // `with_pairs`. Returns false without a context, or if the driver fails.
  bool Attach(CommunicatorTimer& timer, bool with_pairs);
  // Call in finalize. Callbacks no longer begin to use the timer.
  static void Retire(CommunicatorTimer& timer, uint64_t now_ns);

  // ---- launching thread; NCCL serializes the launches of a communicator ----

  // True if `stream` is in capture, or the query is refused because of a capture. Any other error
  // switches the timer off.
  bool IsCapturing(CommunicatorTimer& timer, CudaStream stream) {
    int capturing = kCudaNotCapturing;
    const int result = driver_.stream_is_capturing(stream, &capturing);
    if (__builtin_expect(result != kCudaSuccess, 0)) {
      return (result >= kCudaFirstCaptureError && result <= kCudaLastCaptureError) ||
             Fail(timer, result);
    }
    return capturing != kCudaNotCapturing;  // also true for an invalidated capture
  }
  // True if `stream` is of the timer's context. Handles 0 to 2 are streams of the current context,
  // which NCCL sets only around a launch.
  bool IsReachable(const CommunicatorTimer& timer, CudaStream stream) const {
    constexpr uintptr_t kLastOfCurrentContext = 2;
    if (reinterpret_cast<uintptr_t>(stream) > kLastOfCurrentContext) return true;
    CudaContext current = nullptr;
    return driver_.context_get_current(&current) == kCudaSuccess && current == timer.context_;
  }
  // Records a gate before a launch, on a stream that is not in capture.
  [[gnu::cold, gnu::noinline]] void RecordGate(CommunicatorTimer& timer, CudaStream stream,
                                               uint64_t now_ns);
  // Drops the gate, because its launch is not made.
  static void GiveGateUp(CommunicatorTimer& timer) {
    timer.gate_.store(CommunicatorTimer::kNoGate);
  }
  // Call before a timed launch. Returns the pair's index, or kNoPair if none is free or the driver
  // fails. Results::OnTimed sees all that the caller stores for the pair until EndPair.
  uint32_t BeginTiming(CommunicatorTimer& timer, CudaStream stream);
  // Call after a timed launch. Returns false if the pair is lost.
  [[gnu::cold, gnu::noinline]] bool EndPair(CommunicatorTimer& timer, CudaStream stream,
                                            uint32_t pair, uint64_t now_ns);
  // Frees the pair, because its launch is not made.
  static void GivePairUp(CommunicatorTimer& timer, uint32_t pair) {
    timer.pairs_[pair].state.store(TimedPair::kFree);
  }
  // Call after each launch, timed or not. `may_count()`: NCCL's counter may include its work.
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

  // Call before a launch if is_counted. Returns true if the launch is hurried: no event is recorded
  // behind it, and EndHurried replaces End. Relaxed: until the launch is counted, the poller may
  // date the previous launch by this one's time, less than kHurryNs too late.
  static bool BeginHurried(CommunicatorTimer& timer, uint64_t now_ns) {
    if (__builtin_expect(!IsInAHurry(timer, now_ns) || NeedsMore(timer, now_ns), 0)) {
      return false;
    }
    timer.last_launch_ns_.store(now_ns);
    return true;
  }
  // True if a launch at `now_ns` comes after a pause: it may be the first of a training step.
  static bool ComesAfterPause(const CommunicatorTimer& timer, uint64_t now_ns) {
    return now_ns >= timer.last_launch_ns_.load() + kPauseNs;
  }
  // Counts a hurried launch. Returns the time of its BeginHurried.
  static uint64_t EndHurried(CommunicatorTimer& timer) {
    timer.launched_.publish_sum(1);  // with its time
    return timer.last_launch_ns_.load();
  }

  // ---- poller ----

  struct Progress {
    uint64_t completed = 0;    // number of completed launches
    uint64_t oldest_ns = 0;    // time of the oldest launch in flight, 0: none
    uint64_t progress_ns = 0;  // last poll that saw a completion
    bool in_flight = false;    // launches or pairs are in flight, except kUntold launches
    bool advanced = false;     // launches completed since the last poll
    OldestLaunch oldest = OldestLaunch::kUnknown;  // state of the oldest launch in flight
    bool is_at_oldest = false;  // with kBegun: that launch is known to be incomplete
  };
  // Receives the results of timed launches.
  class Results {
   public:
    virtual void OnTimed(uint32_t pair, uint64_t launch_ns, uint64_t duration_ns) = 0;
    // The pair has no result.
    virtual void OnLost(uint32_t pair) = 0;

   protected:
    ~Results() = default;
  };
  // Polls, and calls `results` once for each finished pair. Returns false if the driver failed,
  // which switches the timer off.
  bool Poll(CommunicatorTimer& timer, const CountedLaunches& counted, uint64_t now_ns,
            Results& results, Progress* progress);
  // Returns the number of launches since the last call.
  static uint64_t TakeLaunches(CommunicatorTimer& timer);
  // True if Retire was called some seconds ago.
  static bool IsOver(const CommunicatorTimer& timer, uint64_t now_ns);
  // Destroys the events of a timer that is over, and that no callback uses. Attach can then use it
  // again.
  void Destroy(CommunicatorTimer& timer);

 private:
  // Does the work of End if a marker may be due or the launch has a gate.
  [[gnu::cold, gnu::noinline]] void EndWithMore(CommunicatorTimer& timer, CudaStream stream,
                                                uint64_t launched, uint64_t now_ns);
  // Returns false if the driver failed.
  bool RecordTail(CommunicatorTimer& timer, CudaEvent tail, CudaStream stream) {
    const int result = driver_.event_record(tail, stream);
    return __builtin_expect(result == kCudaSuccess, 1) || Fail(timer, result);
  }
  // Publishes that `tail_` is behind launch number `launched`.
  static void CountTail(CommunicatorTimer& timer, uint64_t launched) {
    // A poller that reads this number queries a `tail_` behind that launch.
    timer.tail_launch_.publish(launched);
  }
  static bool IsMarkerDue(const CommunicatorTimer& timer, uint64_t now_ns) {
    return now_ns >= timer.last_marker_ns_.load() + kMarkerSpacingNs;
  }
  // True if the next launch needs a marker, or has a gate.
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
  // Records a marker behind launch number `launched`, if one is due. Returns false if the driver
  // failed.
  bool RecordMarker(CommunicatorTimer& timer, CudaStream stream, uint64_t launched,
                    uint64_t now_ns);
  // Completes a gate after launch number `launched` and its tail were recorded. `last_tail`: tail
  // of the previous launch, or null.
  static void EndGate(CommunicatorTimer& timer, LaunchGate& gate, CudaEvent last_tail,
                      uint64_t launched);
  enum class PairState { kWaiting, kDone, kLost };
  PairState PollPair(CommunicatorTimer& timer, TimedPair& pair, bool* entered,
                     uint64_t* duration_ns);
  bool PollHeartbeat(CommunicatorTimer& timer, const CountedLaunches& counted, uint64_t now_ns,
                     bool* entered, Progress* progress);
  // Result of querying the gates. Launches are identified by their numbers; 0: not known.
  struct Front {
    uint64_t completed;       // completed launches; in: as known before, out: gates may add some
    uint64_t begun_ns = 0;    // time of launch `begun_`, if this query found that it has begun
    uint64_t waiting = 0;     // launch that the GPU has not reached
    uint64_t waiting_ns = 0;  // time of that launch
    uint64_t standing = 0;    // launch that is known to be incomplete
  };
  // Queries the gates if `ask`; otherwise only clears the gates of completed launches. Returns
  // false if the driver failed.
  bool PollGates(CommunicatorTimer& timer, uint64_t launched, bool ask, Front* front);
  // Queries one gate. Returns kCudaSuccess, or the driver's error.
  int AskGate(CommunicatorTimer& timer, const LaunchGate& gate, uint64_t launch, Front* front);
  // Returns the gate of the current launch, or null.
  [[gnu::hot]] static LaunchGate* PendingGate(CommunicatorTimer& timer) {
    const uint8_t which = timer.gate_.load();
    if (__builtin_expect(which == CommunicatorTimer::kNoGate, 1)) return nullptr;
    if (which == CommunicatorTimer::kNewestGate) return &timer.newest_gate_;
    return &timer.gates_[timer.armed_gates_.load() % kGates];
  }
  // Makes the timer's context current. Returns kCudaSuccess or an error: kCudaInvalidContext if the
  // context was replaced.
  int Enter(const CommunicatorTimer& timer, bool* entered);
  // Queries the tail while nothing is in flight. Returns false if the context is lost.
  bool AskIdle(CommunicatorTimer& timer, uint64_t now_ns, bool* entered);
  void DestroyEvents(CommunicatorTimer& timer);
  // Switches the timer off. The record's completion source follows with the next poll. If two
  // threads fail at once, either error may be kept.
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
