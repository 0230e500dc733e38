// Times launches on their stream with CUDA events, and knows which launches have completed.
//
//   launching thread, in KernelLaunch            "pulse-poll", every 20 ms while work is in flight
//   ------------------------------------         -----------------------------------------------
//   start: sampled? record `begin`               query `end` of each armed pair -> elapsed ->
//   histogram stop:  sampled? record `end`, arm the pair   query `marker`, then `tail`    ->
//   completed launches,
//          record `marker` if it is free                                           oldest in flight
//          record `tail`
//
// Per (communicator, stream) two events without timing: `tail` is recorded again after every
// launch, so when it is complete everything is. Under steady load it never is; `marker` is recorded
// again only when its last record was seen complete, so it always says something about a fixed
// launch. Constant memory, at most two queries, whatever the rate.
//
// A stream in capture is never touched. No event is destroyed while a callback could use it: those
// of a finalized communicator are destroyed by the poller some seconds later.
//
// Thread: as drawn; AddCommunicator and RemoveCommunicator under the runtime's lock. The poller
// holds nothing that a callback waits for; a driver call that blocks blocks the poller alone. Cost
// on the launching thread: one record without timing (0.1 us) a launch, two with timing (5.8 us)
// for a sampled one. GPU: nothing for the heartbeat, about 5 us for a sampled launch. Errors: a
// driver call that fails (context destroyed, device lost) switches the communicator's timer off;
// its in-flight metrics are then absent.
#ifndef PLUGIN_STREAM_TIMER_H_
#define PLUGIN_STREAM_TIMER_H_

#include <atomic>
#include <cstdint>

#include "plugin/cuda_driver.h"

namespace nccl_pulse {

inline constexpr int kTimedPairs = 8;
inline constexpr int kStreams = 4;

// A pair of timing events around one launch.
struct TimedPair {
  // kFree -> kTaken (launching thread) -> kArmed (launching thread) -> kFree (poller)
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

struct StreamHeartbeat {
  std::atomic<CudaStream> stream;
  std::atomic<bool> in_use;
  CudaEvent tail, marker;
  std::atomic<uint64_t> launched;  // launching thread; counts launches that `tail` stands behind
  std::atomic<uint64_t> last_launch_ns;  // launching thread
  std::atomic<uint32_t> marker_armed;    // set by the launching thread, cleared by the poller
  std::atomic<uint64_t> marker_launch;   // launch number behind which `marker` was recorded
  std::atomic<uint64_t> marker_ns;
  std::atomic<uint64_t> completed;  // poller
  std::atomic<uint64_t> oldest_ns;  // poller: launch time of the oldest in flight, 0: none
};

// One communicator's.
struct CommunicatorTimer {
  // kOff -> kOn (init) -> kRetired (finalize) -> kOff (poller, events destroyed); kFailed on a
  // driver error.
  enum State : uint32_t { kOff = 0, kOn = 1, kFailed = 2, kRetired = 3 };
  std::atomic<uint32_t> state;
  CudaContext context;
  int device;
  std::atomic<uint64_t> retired_ns;
  std::atomic<uint32_t> untracked_launches;  // on more streams at a time than there is room for
  TimedPair pairs[kTimedPairs];
  StreamHeartbeat streams[kStreams];
};

// What a launch was given, to be handed back when it was made.
struct LaunchMark {
  static constexpr uint8_t kNone = 0xff;
  uint8_t stream = kNone;  // index of the heartbeat
  uint8_t pair = kNone;    // index of the timed pair
};

enum class StreamState { kTracked, kUntracked, kCapturing };

class StreamTimer {
 public:
  explicit StreamTimer(const CudaDriver& driver) : driver_(driver) {}

  // Init: makes the events in the calling thread's current context. False when there is none or it
  // fails.
  bool Attach(CommunicatorTimer& timer);
  // Finalize: no callback uses the timer from now on.
  static void Retire(CommunicatorTimer& timer, uint64_t now_ns);

  // Launching thread, before the launch. `sample`: time it, if a pair is free.
  StreamState Begin(CommunicatorTimer& timer, CudaStream stream, bool sample, LaunchMark* mark);
  // Launching thread, after the launch.
  void End(CommunicatorTimer& timer, LaunchMark mark, uint64_t now_ns);

  // ---- poller ----

  struct Progress {
    uint64_t launched = 0, completed = 0;  // of the streams tracked
    uint64_t oldest_ns = 0;                // launch time of the oldest in flight, 0: none
    bool pairs_armed = false;
  };
  // False when the driver failed: the timer is off from now on.
  // `timed(pair, duration_ns)` is called for each finished pair.
  template <typename Timed>
  bool Poll(CommunicatorTimer& timer, Timed timed, Progress* progress) {
    if (!EnterContext(timer)) return Fail(timer);
    for (TimedPair& pair : timer.pairs) {
      // Acquire: sees what the launching thread wrote before it armed the pair.
      if (pair.state.load(std::memory_order_acquire) != TimedPair::kArmed) continue;
      const int result = driver_.event_query(pair.end);
      if (result == kCudaNotReady) {
        progress->pairs_armed = true;
        continue;
      }
      float milliseconds = 0;
      if (result != kCudaSuccess ||
          driver_.event_elapsed_time(&milliseconds, pair.begin, pair.end) != kCudaSuccess) {
        return Fail(timer);
      }
      const double ns = static_cast<double>(milliseconds) * 1e6;
      timed(pair, ns > 0 ? static_cast<uint64_t>(ns) : 0);
      pair.state.store(TimedPair::kFree, std::memory_order_release);  // hands the pair back
    }
    for (StreamHeartbeat& stream : timer.streams) {
      if (!PollStream(stream, progress)) return Fail(timer);
    }
    return true;
  }
  // Destroys the events of a timer retired long enough ago.
  void DestroyRetired(CommunicatorTimer& timer, uint64_t now_ns);

 private:
  StreamHeartbeat* FindStream(CommunicatorTimer& timer, CudaStream stream);
  bool PollStream(StreamHeartbeat& stream, Progress* progress);
  bool EnterContext(CommunicatorTimer& timer);
  void DestroyEvents(CommunicatorTimer& timer);
  static bool Fail(CommunicatorTimer& timer);

  const CudaDriver& driver_;
  CudaContext entered_ = nullptr;  // poller's current context
};

}  // namespace nccl_pulse

#endif  // PLUGIN_STREAM_TIMER_H_
