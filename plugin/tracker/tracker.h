// What happens in a callback: finds the communicator and operation that an event belongs to, and
// turns events into numbers in the communicator's lanes.
//
// Thread: every method may be called from any thread at any time, concurrently, also for
// communicators that were finalized. Add/Finish/SettleIdle: see there. No lock, no allocation, no
// system call (the clock reads a counter, or the vDSO), no exception, no logging; nothing NCCL
// passed is dereferenced but the strings of the event itself. Cost: bench/callbacks.cc; about 150
// ns for all callbacks of one eager collective, 280 with cold caches (docs/stream-timing.md).
// Errors: none. What does not fit is counted by reason (IgnoredReason) and dropped.
//
// What an operation's numbers mean:
//   nccl_operation_completion_seconds{source="proxy"}   Coll/P2p start to the last ProxyOp stop,
//   for operations
//       with network traffic. How many ProxyOps will come is not known: an operation is settled
//       when all that started have stopped and nothing came for kQuietNs, or when its slot is
//       needed, or at finalize.
//   nccl_operation_completion_seconds{source="kernel"}  Coll/P2p start to the KernelCh stop that
//   completed the
//       operation's channels, for operations without network traffic, with kernel timing on.
//   nccl_operation_duration_seconds{timing="kernel"}    last GPU stop minus first GPU start over
//   the channels,
//       when all channels stopped, their intervals overlap, none runs backwards, the communicator
//       is trusted.
//   nccl_operation_duration_seconds{timing="network"}   first network step that moved data to the
//       last ProxyOp stop, for operations whose steps were watched (tracker_steps.cc).
#ifndef PLUGIN_TRACKER_TRACKER_H_
#define PLUGIN_TRACKER_TRACKER_H_

#include <cstdint>
#include <memory>

#include "metrics/lane_writer.h"
#include "metrics/record_writer.h"
#include "metrics/segment.h"
#include "plugin/cuda/graph_stamps.h"
#include "plugin/cuda/stream_timer.h"
#include "plugin/tracker/clock.h"
#include "plugin/tracker/communicator.h"
#include "plugin/tracker/events.h"
#include "plugin/tracker/name_cache.h"
#include "plugin/tracker/sampler.h"
#include "plugin/tracker/step_table.h"
#include "plugin/tracker/ticket.h"

namespace nccl_pulse {

enum class TimingMode { kAuto, kKernel, kOff };

class Tracker {
 public:
  // An operation whose ProxyOps have all stopped is settled after this much silence. NCCL hands all
  // of an operation's ProxyOps to the progress thread at once, so the silence between two is
  // milliseconds.
  static constexpr uint64_t kQuietNs = 1000000000;

  // `driver` may be null: then nothing is timed on streams, and what has completed is not known.
  // `timed_launches_per_second`: see Sampler.
  Tracker(Segment& segment, Clock& clock, TimingMode timing, const CudaDriver* driver, int32_t pid,
          uint32_t process_tag, int timed_launches_per_second);
  Tracker(const Tracker&) = delete;
  Tracker& operator=(const Tracker&) = delete;

  // ---- life of a communicator: init and finalize, one caller at a time (the runtime's lock) ----

  struct CommunicatorIdentity {
    uint64_t comm_id;
    const char* name;  // may be null
    int rank, nranks, nnodes;
    const char* gpu;
    const char* uuid;
    const char* pci_bus_id;
    int64_t realtime_ns;
    int api_version;      // of the NCCL that makes it
    uint32_t event_mask;  // that it was given
  };
  // The context ticket, or 0 when there is no room (more than kMaxCommunicators at the same time,
  // or memory was refused).
  uint64_t AddCommunicator(const CommunicatorIdentity& identity);
  void FinishCommunicator(uint64_t context);
  // Whether CUDA events are to tell which launches completed, and whether they do for this one.
  bool WantsHeartbeat() const { return stream_timer_ != nullptr && has_sight(); }
  bool HasHeartbeat(uint64_t context) const {
    return IsFollowed(slots_[Ticket::Communicator(context)]);
  }
  uint32_t live_communicators() const { return live_; }

  // From now on graphs are followed by stamps (graph_stamps.h). Before the first communicator.
  // False when the driver has not what that needs, or there is no memory.
  bool FollowGraphs(const CudaDriver& driver);
  // In init, on the thread that makes a communicator: whether graphs captured in its context are.
  bool FollowsGraphsHere() { return graphs_ != nullptr && graphs_->PrepareContext(); }

  // Finalized communicators give way, the oldest first, until there is room for the series of a
  // further one (tracker_room.cc). By whoever holds the runtime's lock.
  void MakeRoom();
  // Whether that would do anything. Any thread.
  bool WantsRoom() const;

  // ---- pages for callbacks: init, finalize and the background thread (tracker_pages.cc) ----

  // So many are ready at least, and so many more for each communicator that has not begun.
  static constexpr uint32_t kLeastPagesReady = 192;
  static constexpr uint32_t kPagesOfNewcomer = 6;
  // Looks at what communicators will want.
  void ExpectPages();
  // Makes so many pages ready, with those of `newcomers` further communicators. False when the
  // kernel refuses memory.
  bool KeepPagesReady(uint32_t newcomers);

  // ---- callbacks ----

  [[gnu::hot]] uint64_t StartGroup(uint64_t context, bool captured);
  [[gnu::hot, gnu::flatten]] uint64_t StartCall(uint64_t context, const CallEvent& event);
  [[gnu::hot, gnu::flatten]] uint64_t StartLaunch(uint64_t context, const LaunchEvent& event);
  [[gnu::hot, gnu::flatten]] uint64_t StartOperation(uint64_t context, const OperationEvent& event);
  // A copy-engine collective: a launch that carries one operation. Stopped like a launch.
  uint64_t StartCopyEngineOperation(uint64_t context, const CopyEngineEvent& event);
  uint64_t StartProxyOp(uint64_t context, const ProxyOpEvent& event);
  uint64_t StartStep(uint64_t proxy_op);
  uint64_t StartKernelChannel(uint64_t context, const KernelChannelEvent& event);
  [[gnu::hot]] void Stop(uint64_t ticket) {
    const uint64_t issuer = Ticket::Issuer(ticket);
    if (issuer == launch_issuer_) return StopLaunch(ticket);
    if (issuer == operation_issuer_ && StopNewestOperation(ticket)) return;
    StopAny(ticket);
  }
  // KernelCh has its stop time (state 22). `gpu_ns` null: NCCL passed no arguments.
  void RecordKernelStop(uint64_t ticket, const uint64_t* gpu_ns);
  // A ProxyStep has reached a state (8 to 12, 20). `bytes` null: NCCL passed no arguments.
  void RecordStep(uint64_t ticket, int state, const uint64_t* bytes);
  // Any other state of NCCL's enumeration, or an unknown one.
  void RecordState(uint64_t ticket, int state);

  [[gnu::cold, gnu::noinline]] void Ignore(IgnoredReason reason) {
    // A rare path on any thread: a read-modify-write is fine. Relaxed: a counter orders nothing.
    segment_.header().ignored[static_cast<int>(reason)].fetch_add(1, std::memory_order_relaxed);
  }

  // ---- background thread ----

  // Settles operations that have been quiet. True while some are open.
  bool SettleIdle();

  // Looks at the events behind the launches, and where there are none at the operations. True while
  // launches are in flight.
  bool PollLaunches();

  // There is no thread that calls PollLaunches, or none any more: communicators that are made from
  // now on get no events, so that nothing is claimed of them. Any thread.
  void LoseSight() { has_sight_.store(false, std::memory_order_relaxed); }  // a flag
  bool has_sight() const { return has_sight_.load(std::memory_order_relaxed); }

  // Once a second or so: how many launches are timed from now on.
  void AdaptSampling();

  // Whether a proxy operation has ended: only network traffic has such an end.
  bool network_seen() const { return network_seen_.load(std::memory_order_relaxed); }  // a flag

  // Makes room for network steps; until then all are refused. With `always` those of CUDA graphs
  // count too (tracker_steps.cc). False when the kernel refuses memory. Init or background thread,
  // one at a time.
  bool PrepareSteps(bool always);

  Segment& segment() { return segment_; }

 private:
  // The group that a thread is in. NCCL says that one begins on the thread that makes its calls,
  // once for all of its communicators. A table, for memory of each thread's own (thread_local)
  // takes room that a library opened later may not get. When two threads meet at one place, neither
  // is told.
  struct ThreadGroup {
    std::atomic<uintptr_t> thread;
    std::atomic<uint64_t> group;
  };
  static constexpr int kThreadGroupBits = 7;
  ThreadGroup& GroupOfThread(uintptr_t thread) {
    return thread_groups_[thread * 0x9e3779b97f4a7c15ULL >> (64 - kThreadGroupBits)];
  }

  struct OperationRef {
    Communicator* communicator;  // null: not a ticket of this process
    OperationSlot* slot;
    uint32_t generation, child, operation;
  };
  // The fields of a slot, read while `word` stood.
  struct OperationState {
    uint64_t word, last_stop, enqueue_ns, bytes;
    OperationMeta meta;
  };

  // Null, and counted, when the context is not of a live communicator of this process.
  Communicator* FindContext(uint64_t context) {
    Communicator& communicator = slots_[Ticket::Communicator(context)];  // always within the table
    // Acquire: sees the communicator as AddCommunicator made it.
    const uint64_t valid = communicator.context.load(std::memory_order_acquire);
    if (__builtin_expect(valid != context || context == 0, 0)) {
      IgnoreContext(context);
      return nullptr;
    }
    return &communicator;
  }
  [[gnu::cold, gnu::noinline]] void IgnoreContext(uint64_t context);

  // Whether this process gave the ticket out, for that.
  bool IsOwn(uint64_t ticket, TicketKind kind) const {
    return Ticket::Issuer(ticket) == Ticket::MakeIssuer(process_tag_, kind);
  }
  // Null communicator when the ticket is not of an operation (or child) that this process gave out.
  OperationRef FindOperation(uint64_t ticket, TicketKind kind) {
    OperationRef ref{};
    ref.operation = Ticket::Operation(ticket);
    if (!IsOwn(ticket, kind) || ref.operation >= kOperationSlots) {
      return ref;
    }
    Communicator& communicator = slots_[Ticket::Communicator(ticket)];
    // A slot that was never used has no operations. Acquire: a made-up ticket may come without the
    // context that published them.
    OperationSlot* operations = __atomic_load_n(&communicator.operations, __ATOMIC_ACQUIRE);
    if (operations == nullptr) return ref;
    ref.communicator = &communicator;
    ref.slot = &operations[ref.operation];
    ref.generation = Ticket::Generation(ticket);
    ref.child = Ticket::Child(ticket);
    return ref;
  }
  LaneWriter ClaimLane(Communicator& communicator, LaneRole role) {
    // Relaxed: the writer compares it with the record while it holds the lane.
    return LaneWriter(segment_, *communicator.record,
                      communicator.record_generation.load(std::memory_order_relaxed), role);
  }
  uint64_t ChildTicket(const OperationRef& ref, TicketKind kind, uint32_t child) const {
    return Ticket::Pack(process_tag_, kind, child, ref.generation, ref.operation,
                        ref.communicator->index);
  }
  static OperationState ReadSlot(const OperationSlot& slot, uint64_t word);
  struct NewOperation {
    uint64_t meta;  // OperationMeta
    uint64_t bytes, enqueue_ns;
    bool captured;
  };
  // Its ticket, 0: there is no place.
  [[gnu::hot]] uint64_t ClaimSlot(Communicator& communicator, LaneWriter& lane,
                                  const NewOperation& operation);
  // Takes a place whose last operation may have something to say, and settles that. `claimed`: the
  // place's new generation, as its word has it. False: it can not be taken.
  [[gnu::noinline]] bool SettleUsedSlot(Communicator& communicator, uint32_t index,
                                        LaneWriter& lane, uint64_t* claimed);
  // Counts what an operation that has been taken (by the swap of its word) came to.
  [[gnu::noinline]] void Settle(Communicator& communicator, uint32_t operation,
                                const OperationState& state, LaneWriter& lane);
  bool SettleSlotIfIdle(Communicator& communicator, uint32_t operation, uint64_t now_ns);
  void SettleAll(Communicator& communicator);
  void SettleAll(Communicator& communicator, LaneWriter& lane);
  void FinishKernel(const OperationRef& ref, KernelTimes& times, uint64_t tag);
  void CountKernelTime(Communicator& communicator, const OperationMeta& meta, uint64_t bytes,
                       const KernelTimes& times, uint64_t tag, uint64_t now_ns, LaneWriter& lane);
  [[gnu::noinline]] void CountUntimed(LaneWriter& lane, uint8_t op, UntimedReason reason);
  void CountLatency(Communicator& communicator, LaneWriter& lane, LatencyKind kind,
                    const OperationMeta& meta, uint64_t bytes, uint64_t bus_bytes,
                    uint64_t duration_ns, uint64_t end_ns);
  void BeginGroup();
  // Tells the calls of one group from those of another, 0: not known.
  uint64_t ThisGroup();
  // Returns the call's serial, 0 for one that is not sampled.
  [[gnu::hot]] uint32_t NoteCall(Communicator& communicator, NameId op, uint32_t size_class,
                                 uint64_t bytes);
  [[gnu::cold, gnu::noinline]] static uint32_t NextSerial(PendingLaunch& pending);
  static void NoteFirstCall(PendingLaunch& pending, uint64_t bytes, uint64_t group);
  // A call after calls that have not been launched, of the same group or not.
  [[gnu::cold, gnu::noinline]] void NoteUnlaunchedCalls(Communicator& communicator, NameId op,
                                                        uint64_t bytes, uint64_t group);
  void NoteFurtherCall(Communicator& communicator, NameId op, uint64_t bytes);
  struct CapturedCall {
    CudaStream stream;
    NameId op;
    uint32_t size_class;
    uint64_t bytes;
  };
  [[gnu::cold, gnu::noinline]] void NoteCapturedCall(Communicator& communicator,
                                                     const CapturedCall& call);
  // Calls without a launch that NCCL reported (unreported_calls.h).
  bool IsCollective(NameId op) const;
  void NoteSecondCall(LaunchState& launching) const;
  static void LeaveCalls(LaunchState& launching);
  static void ForgetCapturedCall(LaunchState& launching);
  // A launch was reported that is not followed.
  static void CoverCalls(LaunchState& launching);
  static void ResetUnreportedCalls(LaunchState& launching);
  static bool IsLastGroup(const LaunchState& launching);
  static uint64_t PendingCalls(const LaunchState& launching);
  static uint64_t HiddenCalls(const LaunchState& launching);
  void PublishUnreportedCalls(Communicator& communicator);
  static uint64_t PendingBusBytes(const Communicator& communicator);
  [[gnu::hot]] bool ShouldTime(const Communicator& communicator, const OperationMeta& meta) const;
  // A call that finds another one still uncounted: both at once.
  [[gnu::noinline]] void CountCall(Communicator& communicator, uint64_t key, uint64_t bytes);
  void CountLeftCall(Communicator& communicator);
  [[gnu::hot]] static bool IsGateDue(const PendingLaunch& pending);
  [[gnu::hot]] bool IsCalledIntoGraph(Communicator& communicator, uint64_t parent);
  [[gnu::hot]] bool IsInCapture(Communicator& communicator, CudaStream stream);
  [[gnu::cold, gnu::noinline]] void CountUnfollowedLaunch(Communicator& communicator,
                                                          bool captured);
  bool IsFollowed(const Communicator& communicator) const;
  [[gnu::hot]] uint64_t BeginLaunch(Communicator& communicator, const LaunchEvent& event,
                                    uint64_t context);
  // Records what a launch has in front of it: a gate, the first of a pair of timing events, or
  // both. False, and counted, when it is not made now but part of a graph.
  [[gnu::cold, gnu::noinline]] bool RecordInFront(Communicator& communicator, CudaStream stream,
                                                  bool may_be_timed, uint32_t calls,
                                                  const TimedPair** pair);
  [[gnu::hot]] static uint64_t OpenLaunch(LaunchState& launching, CudaStream stream,
                                          const TimedPair* pair, uint64_t context);
  [[gnu::cold, gnu::noinline]] TimedPair* BeginTiming(Communicator& communicator, CudaStream stream,
                                                      uint32_t calls);
  [[gnu::cold, gnu::noinline]] void CountLaunchCallback(Communicator& communicator, bool is_launch);
  TimedPair* BeginCopyEngineTiming(Communicator& communicator, const CopyEngineEvent& event,
                                   OperationMeta meta, uint64_t bytes);
  [[gnu::cold, gnu::noinline]] static void NoteTimed(PendingLaunch& pending, uint32_t serial);
  [[gnu::cold, gnu::noinline]] static bool WasTimed(const PendingLaunch& pending, uint32_t serial);
  [[gnu::cold, gnu::noinline]] void AbandonLaunch(Communicator& communicator);
  [[gnu::hot, gnu::flatten]] void StopLaunch(uint64_t ticket);
  [[gnu::cold, gnu::noinline]] void EndTiming(Communicator& communicator, CudaStream stream,
                                              uint32_t index, uint64_t now_ns);
  void FollowOperations(Communicator& communicator);
  void CountAbandonedCall(Communicator& communicator);
  void NoteCallOfGraph(Communicator& communicator, const CapturedCall& call);
  // The ticket of one that is to be stopped, else 0.
  [[gnu::cold, gnu::noinline]] uint64_t StartCapturedLaunch(Communicator& communicator,
                                                            const LaunchEvent& event,
                                                            uint64_t context);
  void StopCapturedLaunch(uint64_t ticket);
  // Counts the replays of graphs. True while there are some.
  bool PollGraphs(uint64_t now_ns);
  bool CountReplays(const GraphStamps::Replayed& replayed);
  void CountTimedReplay(const GraphStamps::Launch& launch, uint64_t duration_ns);
  // True while launches of its are in flight, or were until just now.
  bool PollCommunicator(Communicator& communicator, uint64_t now_ns);
  void NoteWait(Communicator& communicator, uint32_t record_generation,
                const StreamTimer::Progress& progress, uint64_t now_ns);
  void CountTimedLaunch(Communicator& communicator, uint32_t record_generation,
                        const TimedPair& pair, uint64_t duration_ns);
  [[gnu::cold, gnu::noinline]] void CountLostLaunch(Communicator& communicator,
                                                    uint32_t record_generation,
                                                    const TimedPair& pair);
  [[gnu::hot]] LaunchFate FateOf(Communicator& communicator, NameId op, uint64_t bytes,
                                 uint64_t call);
  [[gnu::cold, gnu::noinline]] static void NoteOfGroup(Communicator& communicator, NameId op,
                                                       uint64_t bytes);
  // False for another than the one that its communicator reported last: that one is stopped at
  // once, nearly always.
  bool StopNewestOperation(uint64_t ticket) {
    Communicator& communicator = slots_[Ticket::Communicator(ticket)];
    // Acquire: as in FindOperation. One that was never used has no operations.
    if (__atomic_load_n(&communicator.operations, __ATOMIC_ACQUIRE) == nullptr) return false;
    // Relaxed: see PendingLaunch.
    std::atomic<uint64_t>& unstopped = communicator.launching->pending.unstopped;
    if (unstopped.load(std::memory_order_relaxed) != ticket) return false;
    unstopped.store(0, std::memory_order_relaxed);
    if (__builtin_expect(communicator.context.load(std::memory_order_relaxed) == 0, 0)) {
      Ignore(IgnoredReason::kAfterClose);
    }
    return true;
  }
  void StopAny(uint64_t ticket);
  void StopOperation(const OperationRef& ref);
  // Another operation was started before this one was stopped.
  [[gnu::cold, gnu::noinline]] static void ExpectStop(Communicator& communicator, uint64_t ticket);
  // Whether an operation still takes events of its children; counts why not.
  bool IsOpen(const OperationRef& ref);
  // What a callback took that began then.
  [[gnu::cold, gnu::noinline]] void CountCost(uint64_t begin_ns);
  void StopProxyOp(const OperationRef& ref);
  void StopKernelChannel(const OperationRef& ref);
  uint32_t NextStepPlace(StepTable& steps, uint64_t* word);
  bool IsNeeded(const StepSlot& slot, uint64_t word);
  StepSlot* FindStep(uint64_t ticket, uint64_t* word);
  void StopStep(uint64_t ticket);
  void CountStep(const StepTotals& totals);
  void NoteFirstMove(uint64_t proxy_op, uint64_t now_ns);
  void CountNetworkTime(Communicator& communicator, uint32_t operation, const OperationState& state,
                        LaneWriter& lane);
  [[gnu::cold, gnu::noinline]] void Distrust(Communicator& communicator, TrustState why);
  bool IsTrusted(const Communicator& communicator) const;
  [[gnu::cold, gnu::noinline]] void LearnIdentity(Communicator& communicator,
                                                  const OperationEvent& event);

  int FindRecordToUse();
  bool IsReadyForNext(const Communicator& communicator) const;
  Communicator* OldestFinalized();
  void RecycleExpired();
  bool Recycle(Communicator& communicator);
  bool AllocateSlots(Communicator& communicator);
  uint32_t ExpectedPages(const Communicator& communicator) const;
  void KeepPagesToSettle();
  RecordWriter WriterOf(const Communicator& communicator) {
    return RecordWriter(segment_, *communicator.record);
  }

  Segment& segment_;
  Clock& clock_;
  const TimingMode timing_;
  const int32_t pid_;
  const uint32_t process_tag_;
  const uint32_t operation_issuer_;  // Ticket::MakeIssuer
  Sampler sampler_;
  std::unique_ptr<StreamTimer> stream_timer_;  // null without a driver, or with timing off
  std::unique_ptr<GraphStamps> graphs_;        // null: graphs are not followed
  const uint32_t launch_issuer_;               // without a stream timer that of no ticket
  NameCache names_;
  const NameId send_name_, receive_name_;
  ThreadGroup thread_groups_[1 << kThreadGroupBits]{};
  uint64_t adapted_ns_ = 0;                 // background thread
  uint64_t graph_looks_ = 0;                // background thread
  std::atomic<StepTable*> steps_{nullptr};  // never freed once there
  bool watches_graphs_ = false;             // before steps_
  std::atomic<bool> network_seen_{false};
  std::atomic<bool> has_sight_{true};
  std::atomic<uint32_t> used_slots_{0};  // one past the highest slot ever used
  std::atomic<uint32_t> expected_pages_{0};
  std::atomic<uint64_t> refused_until_ns_{0};  // the kernel has no memory for further pages
  std::atomic<uint32_t> finalized_{0};  // records that could be recycled; changed under init lock
  uint32_t live_ = 0;                   // init lock
  uint32_t communicators_ = 0;          // init lock; n-th communicator of the process
  Communicator slots_[kMaxCommunicators]{};
};

}  // namespace nccl_pulse

#endif  // PLUGIN_TRACKER_TRACKER_H_
