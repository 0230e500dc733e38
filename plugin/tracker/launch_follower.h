// LaunchFollower follows one communicator's calls and launches: it assigns calls to launches, times
// a sample of the launches on their stream, and decides whether the operations that NCCL reports
// have a duration.
//
//   calls since the last launch:  none ──▶ one ──▶ several
//
//     state     event                        next      effect
//     none      a call                       one
//     one       a call of its group          several   begins the group in UnreportedCalls
//     several   a call of its group          several   adds to it
//     any       a call of another group      one       earlier calls stay in UnreportedCalls
//     any       a captured call              none      will be launched with its graph
//     any       a launch                     none      the launch carries the calls
//
//   the current launch:  none ◀──▶ open (started, not stopped), none ◀──▶ hurried
//
//   A launch is followed if CUDA events, or NCCL's own counter, show its end. A pair of events,
//   around a launch, times it. A gate is an event before a launch; it shows whether the GPU has
//   reached the launch (stream_timer.h). A hurried launch closely follows the previous one and has
//   no event, because NCCL's counter of finished work shows its end (work_proof.h).
//
//     state     event                        next      effect
//     none      start of a followed launch   open      the launch's fate is decided; a gate, or the
//                                                      first event of a pair, is recorded before it
//     none      start of another launch      none      counted; not as a launch if captured
//     open      its stop                     none      counted; an event is recorded after it
//     open      the next start               open      the previous one is abandoned, with its pair
//     none      start of a hurried launch    hurried   nothing is recorded, and there is no stop
//     hurried   the report of its operation  none      counted
//     hurried   the next start               open      counted
//
//   If NCCL does not report a call's launch, the end of the call's group replaces the launch,
//   provided that NCCL is asked to report the end (awaited_ends.h) and the end is known to come
//   after the launch (unreported_launch.cc).
//
// After a launch, NCCL reports its operations. Each gets the fate of its launch (LaunchFate):
// timed, or the reason for having no duration. A timed operation is the only one of its launch, and
// is recognized by its call's serial, a number that the call's ticket carries (timed_launches.h).
//
// At a callback the caches are full of NCCL's and the driver's data, so the cost is the number of
// cache lines touched. Of this object, a launch that is not sampled touches only the timer's first
// line and the first line, which the communicator's OperationRing shares (communicator_parts.h).
//
// Thread: the launching thread, unless stated otherwise. NCCL serializes the calls and launches of
// one communicator (a non-blocking one launches on another thread, after its call), so there is one
// writer at a time. The fields are atomics all the same, so an NCCL that breaks this costs only
// accuracy. Cost: see bench/callbacks.cc and docs/timing.md.
#ifndef PLUGIN_TRACKER_LAUNCH_FOLLOWER_H_
#define PLUGIN_TRACKER_LAUNCH_FOLLOWER_H_

#include <cstddef>
#include <cstdint>

#include "metrics/atomic_cell.h"
#include "metrics/name_table.h"
#include "metrics/size_class.h"
#include "plugin/cuda/stream_timer.h"
#include "plugin/tracker/communicator.h"
#include "plugin/tracker/composite_call.h"
#include "plugin/tracker/events.h"
#include "plugin/tracker/hidden_operations.h"
#include "plugin/tracker/instruments.h"
#include "plugin/tracker/operation_ring.h"
#include "plugin/tracker/timed_launches.h"
#include "plugin/tracker/unreported_calls.h"

namespace nccl_pulse {

// The table of call numbers has a row per operation and a column per size class. Sampling uses
// these numbers. The last column counts calls whose launch was replaced by the end of their group.
inline constexpr int kCallColumns = 12;
inline constexpr int kFollowedColumn = kCallColumns - 1;
static_assert(kFollowedColumn >= kSizeClasses);

// Whether a launch's operations have a duration: 0 (timed), or the reason why not.
enum class LaunchFate : uint8_t {
  kTimed = 0,  // a single operation: it has the launch's duration
  kNotTimed = static_cast<uint8_t>(UntimedReason::kNotTimed),  // no stream timing
  kNotSampled = static_cast<uint8_t>(UntimedReason::kNotSampled),
  // The launch has several operations: only the launch has a duration.
  kGrouped = static_cast<uint8_t>(UntimedReason::kGrouped),
  // A single operation was called into a CUDA graph.
  kCaptured = static_cast<uint8_t>(UntimedReason::kCaptured),
};

class LaunchFollower {
 public:
  // The rest of the first cache line belongs to the preceding OperationRing (communicator_parts.h).
  static constexpr size_t kBytesOnFirstLine = 48;

  // ---- life of a communicator; init lock ----

  void Reset();
  // True if another communicator can use this object: the timer of the last one is free again.
  bool is_ready() const { return timer_.state() == CommunicatorTimer::kOff; }
  CommunicatorTimer& timer() { return timer_; }

  // ---- calls ----

  // Notes a call. Returns its serial, 0 if it is not sampled. `call`: its packed OperationMeta.
  // `kind_seed`: its part of the sampling hash (sampler.h). `group`: from ThreadGroups::Current.
  [[gnu::hot]] uint32_t NoteCall(const Instruments& instruments, Communicator& communicator,
                                 const OperationRing& ring, uint64_t call, uint64_t kind_seed,
                                 uint64_t bytes, uint64_t group) {
    if (__builtin_expect(calls_.load() != 0, 0)) {
      NoteUnlaunchedCall(instruments, communicator, ring, OperationMeta::Unpack(call).op, bytes,
                         group);
    } else {
      NoteFirstCall(bytes, group);
    }
    meta_.store(call);
    const uint32_t number = OperationMeta::Unpack(call).call_number;
    const bool sampled = instruments.samples() && instruments.sampler.ShouldTime(kind_seed, number);
    Set(kSampled, sampled);
    Set(kFirstOfKind, number == 0);
    return __builtin_expect(sampled, 0) ? timed_.NextSerial() : 0;
  }
  // Returns the index of a kind's number in the table of call numbers. `row`: from OperationRowOf.
  static constexpr uint32_t IndexOfNumber(uint32_t row, uint32_t size_class) {
    return row * kCallColumns + size_class;
  }
  // Returns the number of the kind's next call, from 0. `place`: from IndexOfNumber.
  Relaxed<uint32_t>& CallNumber(uint32_t place) { return call_numbers_[place]; }
  // Returns the number of calls, captured ones included; it may wrap. Any thread.
  uint32_t calls() const;
  // Fast path of NoteCall for a call that is not sampled, if no other call is pending.
  [[gnu::hot]] void NoteUsualCall(uint64_t call, uint64_t bytes, uint64_t group) {
    NoteFirstCall(bytes, group);
    meta_.store(call);
  }
  [[gnu::hot]] bool has_calls() const { return calls_.load() != 0; }
  // Notes that a call was captured into a graph, so it waits for no launch here. A group is
  // captured as a whole, so none of its other calls is pending either.
  void ForgetCall(const Instruments& instruments, const Communicator& communicator, NameId op,
                  uint64_t bytes, uint64_t group) {
    TakeCalls();
    AddPart(instruments, communicator, op, bytes, group);
  }

  // ---- groups whose end is awaited: unreported_launch.cc ----

  // Call after NoteCall, for a call that is not captured. `is_alone`: the group is this call's own.
  [[gnu::cold, gnu::noinline]] void AwaitEnd(Instruments& instruments,
                                             const Communicator& communicator,
                                             const OperationRing& ring, CudaStream stream,
                                             bool is_alone);
  // Call at the end of a group, on the thread of its calls. Counts a launch if NCCL reported none,
  // and returns its time; 0: none was counted. `group`: as in NoteCall.
  [[gnu::cold, gnu::noinline]] uint64_t EndGroup(Instruments& instruments,
                                                 Communicator& communicator,
                                                 const OperationRing& ring, uint64_t group,
                                                 bool is_alone);
  // True if LearnThread need not be called again.
  [[gnu::hot]] bool knows_thread() const {
    return (state_.load() & (kBlocking | kEarlyPair)) == kBlocking;
  }
  // Call before a reported launch, until knows_thread(). `group`: ThreadGroups::Current of the
  // launching thread.
  [[gnu::cold, gnu::noinline]] void LearnThread(uint64_t group);
  // Returns for how many calls of an operation (OperationRowOf) the end of the group replaced the
  // launch. These are counted as timed or not sampled. Any thread.
  uint32_t followed_calls(uint32_t row) const {
    return call_numbers_[IndexOfNumber(row, kFollowedColumn)].load();
  }
  // True if there may be operations that NCCL did not report: a group had several calls, or a call
  // had no launch when the next call came. Any thread.
  bool may_hide() const { return may_hide_.load(); }
  // True if the unreported operations may include more than lone Broadcasts.
  bool hides_others() const { return hides_others_.load(); }

  // ---- launches ----

  // True if CUDA events follow the launches.
  bool is_followed() const { return timer_.is_on(); }
  // Fast path for the start of a followed launch of one call, neither sampled nor with a gate.
  // Returns false, without effect, otherwise. `read_now(&ns)` must be inlined: a function call
  // would cost every launch some registers. It returns false if the clock needs one.
  template <typename ReadNow>
  [[gnu::always_inline]] bool StartUsual(const Instruments& instruments,
                                         const Communicator& communicator, CudaStream stream,
                                         uint64_t context, ReadNow read_now, uint64_t* ticket) {
    if (__builtin_expect(calls_.load() != 1, 0) ||
        __builtin_expect(state_.load() != kBlocking, 0) ||
        __builtin_expect(hurried_gates_.load() != 0, 0)) {
      return false;
    }
    // A hurried launch gets no ticket, so NCCL makes one callback fewer. Its operation is reported
    // on this thread: NCCL uses another thread only for operations with ProxyOps, or beside graphs
    // (src/enqueue.cc, ncclLaunchPrepare).
    uint64_t now_ns;
    if (!__builtin_expect(read_now(&now_ns), 1)) return false;
    const bool is_hurried = timer_.is_counted() &&
                            __builtin_expect(!communicator.handles.are_given(), 1) &&
                            __builtin_expect(!instruments.has_captured.load(), 1) &&
                            StreamTimer::BeginHurried(timer_, now_ns);
    if (!is_hurried && StreamTimer::ComesAfterPause(timer_, now_ns)) return false;
    if (__builtin_expect(is_hurried, 1)) {
      Number(stream, kBlocking | kHurried);
      *ticket = 0;
    } else if (__builtin_expect(!timer_.is_on(), 0)) {
      return false;
    } else {
      *ticket = Open(stream, kNoPair, context, kOpen | kKernel | kMayCount);
    }
    calls_.store(0);
    fate_.store(static_cast<uint8_t>(instruments.unsampled_fate));
    return true;
  }
  // True if the current launch is hurried: it ends with the report of its operation.
  [[gnu::hot]] bool is_hurried() const { return Has(kHurried); }
  // True if a launch has begun and is not counted yet. Any thread.
  bool is_launching() const { return Has(kAnyLaunch); }
  // Counts the hurried launch. Returns the time at which it began.
  [[gnu::hot]] uint64_t EndHurried(RecordWriter record) {
    Set(kAnyLaunch, false);
    const uint64_t began_ns = StreamTimer::EndHurried(timer_);
    record.CountFollowedLaunch(began_ns, true);
    return began_ns;
  }
  // Starts a followed launch. Returns its ticket, or 0 if it is part of a graph.
  [[gnu::hot]] uint64_t Start(Instruments& instruments, Communicator& communicator,
                              CudaStream stream, uint64_t context) {
    if (__builtin_expect(is_launching(), 0)) Abandon(instruments, communicator);
    const uint32_t calls = calls_.load();  // 0: an earlier launch of the group took them
    // Only a sampled call or a group may be timed. A group may be an AlltoAll.
    const bool may_be_timed = calls != 1 || Has(kSampled);
    auto fate = static_cast<LaunchFate>(instruments.unsampled_fate);
    uint32_t pair = kNoPair;
    const uint64_t now_ns = instruments.clock.NowNs();
    if (__builtin_expect(StreamTimer::ComesAfterPause(timer_, now_ns), 0)) Set(kUnhurried, true);
    const bool records = may_be_timed || IsGateDue();
    if (__builtin_expect(records, 0)) {
      if (!RecordInFront(instruments, communicator, stream, may_be_timed, calls, now_ns, &pair)) {
        return 0;
      }
      if (pair != kNoPair) fate = calls == 1 ? LaunchFate::kTimed : LaunchFate::kGrouped;
    }
    const bool may_count = calls == 1 && !Has(kFirstOfKind);
    TakeCalls();
    fate_.store(static_cast<uint8_t>(fate));
    return Open(stream, pair, context, kOpen | kKernel | (may_count ? kMayCount : kOpen));
  }
  // Ends the launch with this ticket. Calls `on_made(now_ns)` if it is the current launch.
  template <typename OnMade>
  [[gnu::hot]] void Stop(Instruments& instruments, Communicator& communicator, uint64_t ticket,
                         OnMade on_made) {
    const uint32_t state = state_.load();
    if (__builtin_expect((state & kAnyLaunch) == 0 ||
                             Ticket::Operation(ticket) != (launch_number_.load() & kNumberMask),
                         0)) {
      return instruments.Ignore(IgnoredReason::kRepeatedStop);
    }
    const uint64_t now_ns = instruments.clock.NowNs();
    RecordWriter record = communicator.Writer(instruments.segment);
    const uint8_t gates = hurried_gates_.load();
    if (__builtin_expect(gates != 0, 0) && (state & kUnhurried) == 0) {
      hurried_gates_.store(gates - 1);
    }
    // If this launch has a gate, the next one needs none.
    const bool is_unhurried =
        now_ns >= record.last_launch_ns() + kPauseNs && (state & kUnhurried) == 0;
    Set(kAnyLaunch, false);
    Set(kUnhurried, is_unhurried);
    record.CountFollowedLaunch(now_ns, (state & kKernel) != 0);
    on_made(now_ns);
    CudaStream const stream = stream_.load();
    const uint32_t pair = Ticket::Child(ticket);
    if (__builtin_expect(pair < kTimedPairs, 0)) {
      EndTiming(instruments, communicator, stream, pair, now_ns);
    }
    instruments.stream_timer->End(timer_, stream, now_ns, [&] {
      // With graphs, NCCL may report operations with network traffic only when the GPU reaches
      // them.
      return (state & kMayCount) != 0 &&
             !(instruments.has_captured.load() &&
               (record.has_captured() || communicator.handles.are_given()));
    });
  }
  // Counts a launch that is not followed. `captured`: it is part of a graph, so not launched now.
  [[gnu::cold, gnu::noinline]] void CountUnfollowed(Instruments& instruments,
                                                    Communicator& communicator, bool captured);
  // True if the launch is captured into a graph. Asks the driver; use if it is not known from the
  // calls (docs/nccl-profiler-api.md#cuda-graphs).
  [[gnu::hot]] bool IsInCapture(Instruments& instruments, Communicator& communicator,
                                CudaStream stream) {
    const bool captured = instruments.stream_timer->IsCapturing(timer_, stream);
    if (captured) communicator.MarkCaptured(instruments.segment);
    return captured;
  }

  // Starts a copy-engine collective: a followed launch of one operation. Returns its ticket. Sets
  // `is_timed` if a pair of events times it.
  uint64_t StartCopies(Instruments& instruments, Communicator& communicator,
                       const CopyEngineEvent& event, const OperationMeta& meta, uint64_t bytes,
                       uint64_t context, bool* is_timed);
  // Call for a reported launch that is not followed.
  void CoverCalls() {
    TakeCalls();
    launch_number_.add(1);  // as for a followed launch, see UnreportedCalls
  }

  // ---- operations ----

  // Returns the LaunchFate of the last launch.
  [[gnu::hot]] uint8_t last_fate() const { return fate_.load(); }
  // Returns the fate of an operation that NCCL reports, maybe from another thread (a CUDA host
  // callback). On another thread it may be the fate of another launch. Then only the reason for
  // having no duration is wrong: a timed operation has a call with a ticket, and is recognized by
  // its serial. `call`: that ticket; 0: none.
  [[gnu::hot]] LaunchFate FateOf(const Instruments& instruments, const Communicator& communicator,
                                 NameId op, uint64_t bytes, uint64_t call) {
    const auto fate = static_cast<LaunchFate>(fate_.load());
    if (__builtin_expect(call != 0, 0) && instruments.IsOwn(call, TicketKind::kApiCall)) {
      if (Ticket::Child(call) != 0) return LaunchFate::kCaptured;
      const uint32_t serial = Ticket::Generation(call);
      timed_.NoteReported(serial);
      if (timed_.WasTimed(serial)) return LaunchFate::kTimed;  // its duration may get lost
    }
    if (__builtin_expect(fate == LaunchFate::kTimed, 0)) return LaunchFate::kNotSampled;
    if (__builtin_expect(fate == LaunchFate::kGrouped, 0)) NoteOfGroup(communicator, op, bytes);
    return fate;
  }

  // ---- background thread ----

  // Call after each poll of the launches. Allows gates for the next few launches, even if they come
  // in quick succession: these normally include the last launches of a training step, before the
  // host pauses. A late call is harmless.
  void NoteLook() { hurried_gates_.store(kGatesAfterLook); }
  const TimedLaunches& timed() const { return timed_; }
  const UnreportedCalls& unreported() const { return unreported_; }
  PendingCalls pending() const {
    // Acquire: a reader that finds no pending call also finds the launch that took it; see
    // EndGroup.
    const uint32_t calls = calls_.acquire();
    return {calls, launch_number_.load(), group_.load()};
  }

 private:
  static constexpr uint32_t kNumberMask = (1u << Ticket::kOperationBits) - 1;
  static constexpr uint8_t kGatesAfterLook = 4;
  // Bits of state_.
  enum State : uint32_t {
    // The current launch.
    kOpen = 1,
    kKernel = 2,   // a kernel, not copy engines
    kHurried = 4,  // one call, without an event; the other launch bits are not set
    // With kKernel: one call, not the first of its operation and size. NCCL's counter may not
    // include other launches, so they have an event.
    kMayCount = 128,
    kAnyLaunch = kOpen | kKernel | kHurried | kMayCount,
    // The communicator launches on the calling thread: a launch was seen there before its group
    // ended.
    kBlocking = 8,
    // The first event of a pair was recorded for the last call, before its launch (early_pair_).
    kEarlyPair = 16,
    // The last pending call is sampled.
    kSampled = 32,
    // The next launch may have a gate (stream_timer.h), because it or the last one follows a pause.
    kUnhurried = 64,
    // The last pending call is the first of its operation and size.
    kFirstOfKind = 256,
  };
  bool Has(uint32_t bits) const { return (state_.load() & bits) != 0; }
  void Set(uint32_t bits, bool on) {
    state_.store(on ? state_.load() | bits : state_.load() & ~bits);
  }

  // Clears the pending calls: they are launched, or captured.
  void TakeCalls() {
    calls_.store(0);
    Set(kSampled | kFirstOfKind, false);
  }
  void NoteFirstCall(uint64_t bytes, uint64_t group) {
    group_.store(group);
    calls_.store(1);
    bytes_.store(bytes);
  }
  // Notes a call while others are pending, of the same or of another group.
  [[gnu::cold, gnu::noinline]] void NoteUnlaunchedCall(const Instruments& instruments,
                                                       Communicator& communicator,
                                                       const OperationRing& ring, NameId op,
                                                       uint64_t bytes, uint64_t group);
  // Notes that there may be unreported launches; see may_hide.
  [[gnu::cold, gnu::noinline]] void NoteHidden(const Communicator& communicator, bool is_alone);
  // True if the last call is a Broadcast.
  bool IsBroadcast() const { return OperationMeta::Unpack(meta_.load()).op == kBroadcastName; }
  // Adds a call of a group, which may be a part of a composite.
  void AddPart(const Instruments& instruments, const Communicator& communicator, NameId op,
               uint64_t bytes, uint64_t group);
  // Call when a group of `calls` calls is launched or captured. Counts the composite that they
  // form. Returns its OperationMeta, or kNoComposite if there is none or it is captured.
  static constexpr uint64_t kNoComposite = 0;
  [[gnu::cold, gnu::noinline]] uint64_t FinishComposite(Instruments& instruments,
                                                        const Communicator& communicator,
                                                        uint32_t calls, bool captured);
  uint64_t PendingBusBytes(const Communicator& communicator) const;
  [[gnu::hot]] static bool ShouldTime(const Instruments& instruments,
                                      const Communicator& communicator, const OperationMeta& call) {
    return instruments.sampler.ShouldTime(communicator.sampling_seed.load(),
                                          OperationRowOf(call.op), call.size_class,
                                          call.call_number);
  }
  [[gnu::hot]] bool IsGateDue() const { return Has(kUnhurried) || hurried_gates_.load() != 0; }
  // Records the events before a launch: a gate, the first of a timing pair, or both. Returns false,
  // after counting it, if the launch is captured. Not marked cold, because GCC 12 would also treat
  // the code after the call as cold.
  [[gnu::noinline]] bool RecordInFront(Instruments& instruments, Communicator& communicator,
                                       CudaStream stream, bool may_be_timed, uint32_t calls,
                                       uint64_t now_ns, uint32_t* pair);
  [[gnu::hot]] uint64_t Open(CudaStream stream, uint32_t pair, uint64_t context, uint32_t launch) {
    pair_.store(static_cast<uint16_t>(pair));
    Number(stream, (state_.load() & ~kAnyLaunch) | launch);
    return Ticket::OfLaunch(context, pair, launch_number_.load() & kNumberMask);
  }
  void Number(CudaStream stream, uint32_t state) {
    stream_.store(stream);
    launch_number_.add(1);
    state_.store(state);
  }
  // Returns the meta data of a launch of several calls. Its call_number, by which it is sampled, is
  // the same on all ranks.
  OperationMeta NextGrouped(Instruments& instruments, const Communicator& communicator);
  [[gnu::cold, gnu::noinline]] uint32_t BeginTiming(Instruments& instruments,
                                                    const Communicator& communicator,
                                                    CudaStream stream, uint32_t calls,
                                                    uint64_t composite);
  uint32_t BeginCopyTiming(Instruments& instruments, const Communicator& communicator,
                           const CopyEngineEvent& event, OperationMeta meta, uint64_t bytes);
  [[gnu::cold, gnu::noinline]] void EndTiming(Instruments& instruments, Communicator& communicator,
                                              CudaStream stream, uint32_t pair, uint64_t now_ns);
  // True if the ending group had an unreported launch. Learns which operations have such launches.
  bool IsHidden(const Instruments& instruments, const OperationRing& ring,
                const RecordWriter& record, bool is_alone);
  // Takes the pair recorded before the last call; kNoPair: none.
  uint32_t TakeEarlyPair();
  // Releases that pair.
  void GiveEarlyPairUp();
  void CountFollowedCall(Instruments& instruments, Communicator& communicator, bool is_timed);
  // Abandons a launch that never ended: NCCL has begun the next one.
  [[gnu::cold, gnu::noinline]] void Abandon(Instruments& instruments, Communicator& communicator);
  [[gnu::cold, gnu::noinline]] void NoteOfGroup(const Communicator& communicator, NameId op,
                                                uint64_t bytes);

  Relaxed<uint64_t> group_;          // group of the pending calls
  Relaxed<uint64_t> bytes_;          // of the pending calls
  Relaxed<uint64_t> meta_;           // OperationMeta of the last call; call_number: its number
  Relaxed<CudaStream> stream_;       // of the last or current launch
  Ordered<uint32_t> calls_;          // pending calls, since the last launch
  Relaxed<uint32_t> launch_number_;  // part of a launch's ticket
  Relaxed<uint16_t> pair_;           // timed pair of the last launch, kNoPair: none
  Relaxed<uint8_t> fate_;            // LaunchFate of the last launch's operations
  Relaxed<uint8_t> hurried_gates_;   // gates left for launches without a pause before them
  Relaxed<uint32_t> state_;          // State: one word, so that one load finds the usual launch
  // ---- next cache line
  Relaxed<uint64_t> bus_bytes_;  // of the pending calls, if several
  TimedLaunches timed_;
  UnreportedCalls unreported_;
  // For calls whose launch is not reported.
  Relaxed<CudaStream> call_stream_;  // of the last call in a group whose end is awaited
  Relaxed<uint16_t> early_pair_;
  Relaxed<bool> may_hide_, hides_others_;
  Relaxed<uint64_t> reported_before_;  // operations reported when that last call was made
  // ---- next cache line
  CommunicatorTimer timer_;
  Relaxed<uint32_t> call_numbers_[kOperationRows * kCallColumns];  // IndexOfNumber
  CompositeCall composite_;                                        // used only for groups
  HiddenOperations hidden_;
  Relaxed<uint64_t> unfollowed_launches_;  // number of launches without events

  static void CheckLayout();
};

inline void LaunchFollower::CheckLayout() {
  static_assert(offsetof(LaunchFollower, bus_bytes_) == kBytesOnFirstLine);
  static_assert(offsetof(LaunchFollower, timer_) % 64 == kBytesOnFirstLine);
}

}  // namespace nccl_pulse

#endif  // PLUGIN_TRACKER_LAUNCH_FOLLOWER_H_
