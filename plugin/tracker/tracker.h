// Tracker handles every callback: it finds the communicator and operation of an event, and passes
// the event to a part below. The parts turn events into numbers in the communicator's lanes.
//
//   one per process
//     Instruments         clock, sampler, stream timer, segment: shared by all parts
//     CommunicatorTable   finds the communicator of an event; life of communicators
//     ThreadGroups        the group that a thread is in
//     NetworkSteps        the steps of ProxyOps
//     GraphFollower       replays of CUDA graphs
//     WorkFollower        NCCL's own counters of finished work
//     ReadyChunks         memory that callbacks are about to need
//   one per communicator
//     OperationRing       open operations; OperationSlot: one operation and its children
//     LaunchFollower      calls and launches; CompositeCall: calls that form an AlltoAll;
//                         TimedLaunches: timed launches and their operations;
//                         UnreportedCalls: calls whose launch NCCL does not report;
//                         UnreportedOperations: operations that NCCL does not report
//     KernelChannels      GPU times
//     LaunchPoller        progress of launches, for the background thread; InflightOperations
//                         replaces it without CUDA events
//
// Thread: callbacks may come on any thread at any time, concurrently, also for communicators that
// were finalized. They take no lock, allocate nothing, make no system call (the clock reads a
// counter, or the vDSO), throw nothing and log nothing. One exception: the first launch of a
// communicator reads memory through /proc/self/mem (work_search.h). Of NCCL's pointers they
// dereference only the event's strings. The other methods name their threads below.
// Cost: about 150 ns for all callbacks of one eager collective, 280 ns with cold caches
// (bench/callbacks.cc, docs/timing.md).
// Errors: none. Unusable events are counted by reason (IgnoredReason) and dropped.
//
// Meaning of an operation's numbers:
//   nccl_operation_completion_seconds{source="proxy"}
//       Coll/P2p start to the last ProxyOp stop, for operations with network traffic. The number of
//       ProxyOps is not known in advance. So an operation is settled when all started ones have
//       stopped and none came for kQuietNs (settling.h), when its slot is needed, or at finalize.
//   nccl_operation_completion_seconds{source="kernel"}
//       Coll/P2p start to the KernelCh stop that completed the operation's channels, for operations
//       without network traffic, with kernel timing on.
//   nccl_operation_duration_seconds{timing="kernel"}
//       last GPU stop minus first GPU start over the channels, when all channels stopped, their
//       intervals overlap, none runs backwards, and the communicator is trusted.
//   nccl_operation_duration_seconds{timing="network"}
//       first network step that moved data to the last ProxyOp stop, for operations whose steps
//       were watched (network_steps.h).
#ifndef PLUGIN_TRACKER_TRACKER_H_
#define PLUGIN_TRACKER_TRACKER_H_

#include <cstdint>

#include "metrics/atomic_cell.h"
#include "plugin/cuda/stream_timer.h"
#include "plugin/tracker/clock.h"
#include "plugin/tracker/communicator.h"
#include "plugin/tracker/communicator_parts.h"
#include "plugin/tracker/communicator_table.h"
#include "plugin/tracker/events.h"
#include "plugin/tracker/graph_follower.h"
#include "plugin/tracker/instruments.h"
#include "plugin/tracker/network_steps.h"
#include "plugin/tracker/ready_chunks.h"
#include "plugin/tracker/thread_groups.h"
#include "plugin/tracker/ticket.h"
#include "plugin/tracker/work_follower.h"

namespace nccl_pulse {

class Tracker {
 public:
  // For the parameters see Instruments.
  Tracker(Segment& segment, Clock& clock, TimingMode timing, const CudaDriver* driver, int32_t pid,
          uint32_t process_tag, int timed_launches_per_second);
  Tracker(const Tracker&) = delete;
  Tracker& operator=(const Tracker&) = delete;

  // ---- life of a communicator: init and finalize, one caller at a time (the runtime's lock) ----

  // Returns the context ticket, or 0: see CommunicatorTable.
  uint64_t AddCommunicator(const CommunicatorIdentity& identity);
  void FinishCommunicator(uint64_t context);
  // True if CUDA events (the "heartbeat") should follow launches.
  bool WantsHeartbeat() const { return instruments_.stream_timer != nullptr && has_sight(); }
  // True if CUDA events follow the launches of this communicator.
  bool HasHeartbeat(uint64_t context) const {
    return communicators_.At(context).parts.acquire()->launches.is_followed();
  }
  void MakeRoom() { communicators_.MakeRoom(); }
  bool WantsRoom() const { return communicators_.WantsRoom(); }  // any thread

  // For Begin and PrepareContext.
  GraphFollower& graphs() { return graphs_; }
  // Starts to follow NCCL's own counters of finished work. Returns false if the driver cannot. Call
  // before the first communicator.
  bool FollowWork(const CudaDriver& driver) { return work_.Begin(driver); }
  void GiveUpWork() { work_.GiveUp(); }
  // Sets how many user tags are distinguished; 0: none. Call before the first callback.
  void SetUserTagLimit(int limit) { instruments_.user_tags.SetLimit(limit); }

  // ---- chunks for callbacks: see ReadyChunks ----

  void ExpectChunks() { chunks_.Expect(communicators_); }
  bool KeepChunksReady(uint32_t newcomers) { return chunks_.Keep(newcomers); }

  // ---- callbacks; eager_callbacks.h defines the inline ones of eager operations ----

  // `is_one_call`: the application made one call, without a group of its own.
  inline uint64_t StartGroup(uint64_t context, bool captured, bool is_one_call);
  // Returns the ticket of a Group before API v5. Its stop has no effect. It is needed because NCCL
  // omits the operations of a Group without a handle (docs/nccl-profiler-api.md#handles).
  uint64_t UnusedGroup() const {
    return Ticket::Pack(instruments_.process_tag, TicketKind::kGroup, 1, 0, 0, 0);
  }
  // Fast paths for the common case of each kind. Return false, without effect, otherwise.
  [[gnu::always_inline]] inline bool StartUsualGroup(uint64_t context, bool captured,
                                                     bool is_one_call);
  [[gnu::always_inline]] inline bool StartUsualLaunch(uint64_t context, const LaunchEvent& event,
                                                      uint64_t* ticket);
  uint64_t StartCall(uint64_t context, const CallEvent& event);
  // Fast path for an ungrouped call like an earlier one. Returns false, without effect, otherwise.
  [[gnu::always_inline]] inline bool CountUsualCall(uint64_t context, const CallEvent& event);
  inline uint64_t StartLaunch(uint64_t context, const LaunchEvent& event);
  inline uint64_t StartOperation(uint64_t context, const OperationEvent& event);
  // Fast path for an operation that is like an earlier one and gets no handle. Returns false,
  // without counting the operation, otherwise; a hurried launch has ended in both cases.
  // `is_measured`: the cost of this callback is measured.
  [[gnu::always_inline]] inline bool CountUsualOperation(uint64_t context,
                                                         const OperationEvent& event,
                                                         bool is_measured = false);
  // A copy-engine collective: a launch that carries one operation. Stopped like a launch.
  uint64_t StartCopyEngineOperation(uint64_t context, const CopyEngineEvent& event);
  [[gnu::flatten]] uint64_t StartProxyOp(uint64_t context, const ProxyOpEvent& event);
  uint64_t StartStep(uint64_t proxy_op) { return steps_.Start(proxy_op); }
  uint64_t StartKernelChannel(uint64_t context, const KernelChannelEvent& event);
  // Fast path for all but the first channel of an operation. Returns false, without effect,
  // otherwise.
  [[gnu::always_inline]] inline bool StartUsualChannel(uint64_t context,
                                                       const KernelChannelEvent& event,
                                                       uint64_t* ticket);
  [[gnu::hot]] void Stop(uint64_t ticket) {
    const uint64_t issuer = Ticket::Issuer(ticket);
    if (issuer == instruments_.launch_issuer) return StopLaunch(ticket);
    if (issuer == instruments_.operation_issuer && StopNewestOperation(ticket)) return;
    if (issuer == instruments_.channel_issuer) return StopKernelChannel(ticket);
    StopAny(ticket);
  }
  // Records the stop time of a KernelCh (state 22). `gpu_ns` is null if NCCL passed no arguments.
  void RecordKernelStop(uint64_t ticket, const uint64_t* gpu_ns);
  // Records a state of a ProxyStep (8 to 12, 20). `bytes` is null if NCCL passed no arguments.
  void RecordStep(uint64_t ticket, int state, const uint64_t* bytes);
  // Records any other state, unknown ones included.
  void RecordState(uint64_t ticket, int state);

  void Ignore(IgnoredReason reason) { instruments_.Ignore(reason); }

  // ---- background thread ----

  // Settles operations that have been quiet. Returns true while operations are open.
  bool SettleIdle();

  // Counts operations that NCCL did not report. Call about ten times a second.
  void CountUnreported();

  // Polls the events behind launches, or operations if there are no events. Returns true while
  // launches are in flight.
  bool PollLaunches();

  // Call if no thread calls PollLaunches, or if its thread has ended. New communicators then get no
  // events, so the state of their launches is unknown: neither complete nor in flight. Any thread.
  void LoseSight() { has_sight_.store(false); }
  bool has_sight() const { return has_sight_.load(); }

  // Reads NCCL's own counters of finished work, on the thread pulse-work. Returns true while a
  // counter is being proven, or a copy is in progress.
  bool PollWorkCounters() { return work_.Poll(communicators_, instruments_.clock.NowNs()); }
  bool follows_work() const { return work_.is_on(); }
  // Returns a communicator whose counter was refuted (contradicted events), each communicator once;
  // null: no further one.
  const Communicator* TakeRefuted(WorkRefutal* refutal) {
    return work_.TakeRefuted(communicators_, refutal);
  }

  // Adapts the number of timed launches. Call about once a second.
  void AdaptSampling();
  // Sets the number of launches to time per second and GPU; -m: one launch in m. See Sampler.
  void SetTimedLaunches(int per_second);

  // True once a proxy operation has ended, which happens only with network traffic.
  bool network_seen() const { return network_seen_.load(); }

  // See NetworkSteps::Prepare.
  bool PrepareSteps(bool always) { return steps_.Prepare(always); }

 private:
  // ---- calls and launches ----
  // True if `parent`, the group or call of a launch or copy-engine collective, was captured into a
  // graph.
  [[gnu::hot]] bool IsCalledIntoGraph(const Communicator& communicator, uint64_t parent) const {
    const TicketKind kind = Ticket::Kind(parent);
    const bool captured = __builtin_expect(parent != 0, 0) &&
                          (kind == TicketKind::kGroup || kind == TicketKind::kApiCall) &&
                          Ticket::Process(parent) == instruments_.process_tag &&
                          Ticket::Child(parent) != 0;
    if (captured) communicator.MarkCaptured(instruments_.segment);
    return captured;
  }
  // Fills `kind` for later calls like this one.
  void LearnCall(const Communicator& communicator, const CallEvent& event, CallKind& kind);
  // Counts a call. Returns false if it is captured, or its kind has no cells in lane kLaunch
  // (LearnCall).
  static bool CountCall(const Communicator& communicator, uint64_t context, const CallEvent& event,
                        const CallKind& kind);
  void CountCallInLane(const Communicator& communicator, const CallEvent& event,
                       const CallKind& kind);
  // Counts as LaneWriter::Count does, but without a claim: this thread is the only writer of lane
  // kLaunch.
  static void CountWithoutClaim(CounterPair& cells, uint64_t bytes, CommunicatorRecord& record) {
    cells.b.add(bytes);
    cells.a.publish_sum(1);
    record.followed.callbacks_of(CallbackKind::kApi).publish_sum(1);
  }
  [[gnu::hot, gnu::flatten]] void StopLaunch(uint64_t ticket);
  // Ends a launch without an event, when its operation is reported.
  [[gnu::always_inline]] inline void EndHurriedLaunch(const Communicator& communicator,
                                                      CommunicatorParts& parts);
  // True if `call`, an operation's call, was captured into a graph.
  [[gnu::hot]] bool IsOfCapturedCall(uint64_t call) const {
    return __builtin_expect(call != 0, 0) && instruments_.IsOwn(call, TicketKind::kApiCall) &&
           Ticket::Child(call) != 0;
  }
  // Handles the end of a group whose end was requested.
  [[gnu::cold, gnu::noinline]] void StopGroup(uint64_t ticket);

  // ---- operations ----
  // Returns 0 for more channels than exist: NCCL 2.28 and later do not set them for API v4.
  static uint8_t ChannelsOf(const OperationEvent& event) {
    return event.channels <= kMaxChannels ? event.channels : 0;
  }
  // Counts an operation without claiming a lane: this thread is the only writer.
  void CountOperation(const Communicator& communicator, CommunicatorParts& parts,
                      const OperationKind& kind, const OperationEvent& event);
  // Notes a Send or Recv in the ring of last calls and in the counts by peer. Caller visits the
  // record. The event's fields are passed one by one: with its address, the callbacks of
  // collectives would also store the event in memory.
  [[gnu::noinline]] void NotePeer(const Communicator& communicator, NameId op, const char* datatype,
                                  uint64_t count, int rank, int32_t peer);
  // Starts an operation with a handle that is like an earlier one. Returns false, without effect,
  // otherwise.
  bool StartKnownOperation(Communicator& communicator, uint64_t context,
                           const OperationEvent& event, uint64_t now_ns, uint64_t* handle);
  // Remembers where later operations like this one are counted, for the fast paths.
  void LearnOperation(CommunicatorParts& parts, const OperationEvent& event, UntimedReason fate,
                      uint64_t key, LaneWriter& writer);
  // Claims a slot of the ring and returns its handle, or counts the loss and returns 0.
  uint64_t ClaimOperation(Communicator& communicator, const OperationMeta& meta,
                          const NewOperation& operation, LaneWriter& writer);
  // The callback cost is measured for one operation in kMeasuredOperations. The first measured one
  // comes early, because most communicators have few operations.
  static constexpr uint64_t kMeasuredOperations = 1024, kFirstMeasured = 15;
  static bool IsMeasured(uint64_t number) { return number % kMeasuredOperations == kFirstMeasured; }
  // Notes a call that no later launch event will complete: it is launched about now.
  [[gnu::cold, gnu::noinline]] void NoteUnlaunched(LastCalls& last_calls, LastCallFields call,
                                                   uint64_t now_ns) const;
  [[gnu::cold, gnu::noinline]] void LearnIdentity(Communicator& communicator,
                                                  const OperationEvent& event);
  // Counts the time that a callback has taken since `begin_ns`.
  [[gnu::cold, gnu::noinline]] void CountCost(uint64_t begin_ns);
  // Fast path for the operation that the communicator reported last: NCCL nearly always stops it
  // next. Returns false for another operation.
  bool StopNewestOperation(uint64_t ticket) {
    Communicator& communicator = communicators_.At(ticket);
    // Acquire: as in FindOperation. A place that was never used has no parts.
    CommunicatorParts* const parts = communicator.parts.acquire();
    if (parts == nullptr || !parts->ring.StopNewest(ticket)) return false;
    if (__builtin_expect(communicator.context.load() == 0, 0)) Ignore(IgnoredReason::kAfterClose);
    return true;
  }
  void StopAny(uint64_t ticket);
  void StopOperation(const OperationRef& ref);
  [[gnu::flatten]] void StopProxyOp(const OperationRef& ref);
  void StopKernelChannel(uint64_t ticket);
  [[gnu::noinline]] void FinishKernel(const OperationRef& ref);

  // ---- background thread ----
  void PublishUnreportedCalls(Communicator& communicator);
  void FollowOperations(Communicator& communicator);

  Instruments instruments_;
  ThreadGroups groups_;
  CommunicatorTable communicators_;
  NetworkSteps steps_;
  GraphFollower graphs_;
  WorkFollower work_;
  ReadyChunks chunks_;
  Relaxed<bool> network_seen_;
  Relaxed<bool> has_sight_;
  // Background thread only.
  bool is_stalled_ = false;         // launches of a communicator are stalled (LaunchPoller)
  uint64_t adapted_ns_ = 0;         // time of the last AdaptSampling
  double launches_per_second_ = 0;  // at adapted_ns_
  int sampled_gpus_ = 0;            // at adapted_ns_; 0: not known yet
};

}  // namespace nccl_pulse

#endif  // PLUGIN_TRACKER_TRACKER_H_
