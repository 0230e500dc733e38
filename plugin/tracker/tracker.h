// Handles every callback: finds the communicator and operation that an event belongs to, and hands
// it to the part that follows it. The parts turn events into numbers in the communicator's lanes.
//
//   of the process
//     Instruments         clock, sampler, stream timer, segment: what the parts measure with
//     CommunicatorTable   which communicator an event belongs to, and its life
//     ThreadGroups        which group a thread is in
//     NetworkSteps        the steps of ProxyOps
//     GraphFollower       replays of CUDA graphs
//     WorkFollower        NCCL's own counters of finished work
//     ReadyPages          memory for what callbacks will want
//   of each communicator
//     OperationRing       operations that are open; OperationSlot: one of them and its children
//     LaunchFollower      calls and launches; CompositeCall: which calls are an AlltoAll;
//                         TimedLaunches: which launches are timed, and for whom;
//                         UnreportedCalls: calls whose launch NCCL does not report;
//                         UnreportedOperations: what those are counted as
//     KernelChannels      GPU times
//     LaunchWatch         what the background thread sees of the launches; where no events follow
//                         them, InflightOperations
//
// Thread: callbacks may come on any thread at any time, concurrently, also for communicators that
// were finalized. They take no lock, allocate nothing, make no system call (the clock reads a
// counter, or the vDSO), throw nothing and log nothing. One exception: the first launch of a
// communicator reads memory through /proc/self/mem (work_search.h). Of what NCCL passes they dereference the
// strings of the event alone. The other methods say below who may call them.
// Cost: about 150 ns for all callbacks of one eager collective, 280 ns with cold caches
// (bench/callbacks.cc, docs/timing.md).
// Errors: none. What does not fit is counted by reason (IgnoredReason) and dropped.
//
// What an operation's numbers mean:
//   nccl_operation_completion_seconds{source="proxy"}
//       Coll/P2p start to the last ProxyOp stop, for operations with network traffic. Nobody knows
//       how many ProxyOps will come. So an operation is settled when all that started have stopped
//       and nothing came for kQuietNs (settling.h), when its slot is needed, or at finalize.
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
#include "plugin/tracker/ready_pages.h"
#include "plugin/tracker/thread_groups.h"
#include "plugin/tracker/ticket.h"
#include "plugin/tracker/work_follower.h"

namespace nccl_pulse {

class Tracker {
 public:
  // As Instruments.
  Tracker(Segment& segment, Clock& clock, TimingMode timing, const CudaDriver* driver, int32_t pid,
          uint32_t process_tag, int timed_launches_per_second);
  Tracker(const Tracker&) = delete;
  Tracker& operator=(const Tracker&) = delete;

  // ---- life of a communicator: init and finalize, one caller at a time (the runtime's lock) ----

  // The context ticket, or 0: see CommunicatorTable.
  uint64_t AddCommunicator(const CommunicatorIdentity& identity);
  void FinishCommunicator(uint64_t context);
  // Whether CUDA events are to tell which launches completed, and whether they do for this one.
  bool WantsHeartbeat() const { return instruments_.stream_timer != nullptr && has_sight(); }
  bool HasHeartbeat(uint64_t context) const {
    return communicators_.At(context).parts.acquire()->launches.is_followed();
  }
  void MakeRoom() { communicators_.MakeRoom(); }
  bool WantsRoom() const { return communicators_.WantsRoom(); }  // any thread

  // Of CUDA graphs: Begin and PrepareContext.
  GraphFollower& graphs() { return graphs_; }
  // NCCL's own counters of finished work are followed from now on; false: they cannot be. Before
  // the first communicator.
  bool FollowWork(const CudaDriver& driver) { return work_.Begin(driver); }
  void GiveUpWork() { work_.GiveUp(); }
  // How many of the user's tags are told apart, 0: none. Before the first callback.
  void SetUserTagLimit(int limit) { instruments_.user_tags.SetLimit(limit); }

  // ---- pages for callbacks: see ReadyPages ----

  void ExpectPages() { pages_.Expect(communicators_); }
  bool KeepPagesReady(uint32_t newcomers) { return pages_.Keep(newcomers); }

  // ---- callbacks; those of an eager operation are in eager_callbacks.h ----

  // `is_one_call`: the application made one call, without a group of its own.
  inline uint64_t StartGroup(uint64_t context, bool captured, bool is_one_call);
  // These are the same for what is like most of its kind. False: it is not, and nothing was done.
  [[gnu::always_inline]] inline bool StartUsualGroup(uint64_t context, bool captured,
                                                     bool is_one_call);
  [[gnu::always_inline]] inline bool StartUsualLaunch(uint64_t context, const LaunchEvent& event,
                                                      uint64_t* ticket);
  uint64_t StartCall(uint64_t context, const CallEvent& event);
  // The same for a call alone like one before it. False: it is not, and nothing was done.
  [[gnu::always_inline]] inline bool CountUsualCall(uint64_t context, const CallEvent& event);
  inline uint64_t StartLaunch(uint64_t context, const LaunchEvent& event);
  inline uint64_t StartOperation(uint64_t context, const OperationEvent& event);
  // The same for an operation like one before it that gets no handle. False: it is not, and nothing
  // was done. `is_measured`: the cost of its callback is.
  [[gnu::always_inline]] inline bool CountUsualOperation(uint64_t context,
                                                         const OperationEvent& event,
                                                         bool is_measured = false);
  // A copy-engine collective: a launch that carries one operation. Stopped like a launch.
  uint64_t StartCopyEngineOperation(uint64_t context, const CopyEngineEvent& event);
  [[gnu::flatten]] uint64_t StartProxyOp(uint64_t context, const ProxyOpEvent& event);
  uint64_t StartStep(uint64_t proxy_op) { return steps_.Start(proxy_op); }
  uint64_t StartKernelChannel(uint64_t context, const KernelChannelEvent& event);
  // The same for a channel behind an operation's first. False: it is not, and nothing was done.
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
  // KernelCh has its stop time (state 22). `gpu_ns` null: NCCL passed no arguments.
  void RecordKernelStop(uint64_t ticket, const uint64_t* gpu_ns);
  // A ProxyStep has reached a state (8 to 12, 20). `bytes` null: NCCL passed no arguments.
  void RecordStep(uint64_t ticket, int state, const uint64_t* bytes);
  // Any other state of NCCL's enumeration, or an unknown one.
  void RecordState(uint64_t ticket, int state);

  void Ignore(IgnoredReason reason) { instruments_.Ignore(reason); }

  // ---- background thread ----

  // Settles operations that have been quiet. True while some are open.
  bool SettleIdle();

  // Ten times a second or so: counts the operations that NCCL did not report.
  void CountUnreported();

  // Looks at the events behind the launches, and where there are none at the operations. True while
  // launches are in flight.
  bool PollLaunches();

  // There is no thread that calls PollLaunches, or none any more: communicators that are made from
  // now on get no events, so that nothing is claimed of them. Any thread.
  void LoseSight() { has_sight_.store(false); }
  bool has_sight() const { return has_sight_.load(); }

  // Reads NCCL's own counters of finished work, on a thread of its own. True while something about
  // one is being decided.
  bool PollWorkCounters() { return work_.Poll(communicators_, instruments_.clock.NowNs()); }
  bool follows_work() const { return work_.is_on(); }
  // A communicator whose counter of finished work contradicts what is known, once each; null: none.
  const Communicator* TakeRefuted(WorkRefutal* refutal) {
    return work_.TakeRefuted(communicators_, refutal);
  }

  // Once a second or so: how many launches are timed from now on.
  void AdaptSampling();
  // The budget of timed launches from now on, or -m: one in m of them. See Sampler.
  void SetTimedLaunches(int per_second);

  // Whether a proxy operation has ended: only network traffic has such an end.
  bool network_seen() const { return network_seen_.load(); }

  // As NetworkSteps::Prepare.
  bool PrepareSteps(bool always) { return steps_.Prepare(always); }

 private:
  // ---- calls and launches ----
  // Of a launch or copy-engine collective, by its group or call: it was called into a graph.
  [[gnu::hot]] bool IsCalledIntoGraph(const Communicator& communicator, uint64_t parent) const {
    const TicketKind kind = Ticket::Kind(parent);
    const bool captured = __builtin_expect(parent != 0, 0) &&
                          (kind == TicketKind::kGroup || kind == TicketKind::kApiCall) &&
                          Ticket::Process(parent) == instruments_.process_tag &&
                          Ticket::Child(parent) != 0;
    if (captured) communicator.MarkCaptured(instruments_.segment);
    return captured;
  }
  // Fills a kind's place.
  void LearnCall(const Communicator& communicator, const CallEvent& event, CallKind& kind);
  // False: it has no cells in lane kLaunch. It is captured, or there is no room for further series.
  static bool CountCall(const Communicator& communicator, uint64_t context, const CallEvent& event,
                        const CallKind& kind);
  void CountCallInLane(const Communicator& communicator, const CallEvent& event,
                       const CallKind& kind);
  // As LaneWriter::Count, in cells of lane kLaunch, by a visitor who alone writes them.
  static void CountWithoutClaim(CounterPair& cells, uint64_t bytes, CommunicatorRecord& record) {
    cells.b.add(bytes);
    cells.a.publish_sum(1);
    record.followed.callbacks_of(CallbackKind::kApi).publish_sum(1);
  }
  [[gnu::hot, gnu::flatten]] void StopLaunch(uint64_t ticket);
  // A launch in a hurry has been made: its operation is reported.
  [[gnu::always_inline]] inline void EndHurriedLaunch(const Communicator& communicator,
                                                      CommunicatorParts& parts);
  // Of an operation, by its call's ticket: it was called into a graph.
  [[gnu::hot]] bool IsOfCapturedCall(uint64_t call) const {
    return __builtin_expect(call != 0, 0) && instruments_.IsOwn(call, TicketKind::kApiCall) &&
           Ticket::Child(call) != 0;
  }
  // The end of a group that is awaited.
  [[gnu::cold, gnu::noinline]] void StopGroup(uint64_t ticket);

  // ---- operations ----
  // More than exist means: not set (NCCL 2.28 and later towards a plugin of API v4).
  static uint8_t ChannelsOf(const OperationEvent& event) {
    return event.channels <= kMaxChannels ? event.channels : 0;
  }
  // Without a claim, by a visitor.
  void CountOperation(const Communicator& communicator, CommunicatorParts& parts,
                      const OperationKind& kind, const OperationEvent& event);
  // An operation like one before it that gets a handle. False: it is not, and nothing was done.
  bool StartKnownOperation(Communicator& communicator, uint64_t context,
                           const OperationEvent& event, uint64_t now_ns, uint64_t* handle);
  // Where the next one like it is counted, if it can be without a handle.
  void LearnOperation(CommunicatorParts& parts, const OperationEvent& event, UntimedReason fate,
                      uint64_t key, LaneWriter& writer);
  // The operation's place in the ring, as a handle. 0: there is no room, which is counted.
  uint64_t ClaimOperation(Communicator& communicator, const OperationMeta& meta,
                          const NewOperation& operation, LaneWriter& writer);
  // One in this many of a communicator's operations has the cost of its callback measured. The
  // first is an early one: most communicators have few.
  static constexpr uint64_t kMeasuredOperations = 1024, kFirstMeasured = 15;
  static bool IsMeasured(uint64_t number) { return number % kMeasuredOperations == kFirstMeasured; }
  // The last call where launches are not reported: it is launched now, about.
  [[gnu::cold, gnu::noinline]] void NoteUnlaunched(LastCalls& last_calls, LastCallFields call,
                                                   uint64_t now_ns) const;
  [[gnu::cold, gnu::noinline]] void LearnIdentity(Communicator& communicator,
                                                  const OperationEvent& event);
  // What a callback took that began then.
  [[gnu::cold, gnu::noinline]] void CountCost(uint64_t begin_ns);
  // False for another than the one that its communicator reported last: that one is stopped at
  // once, nearly always.
  bool StopNewestOperation(uint64_t ticket) {
    Communicator& communicator = communicators_.At(ticket);
    // Acquire: as in FindOperation. One that was never used has no parts.
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
  ReadyPages pages_;
  Relaxed<bool> network_seen_;
  Relaxed<bool> has_sight_;
  bool is_stalled_ = false;         // background thread: launches of some communicator, LaunchWatch
  uint64_t adapted_ns_ = 0;         // likewise
  double launches_per_second_ = 0;  // as of then
  int sampled_gpus_ = 0;            // likewise; 0: not known yet
};

}  // namespace nccl_pulse

#endif  // PLUGIN_TRACKER_TRACKER_H_
