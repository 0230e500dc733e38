// LaunchFollower, the part of launches that NCCL does not report: the end of their group takes
// their place.
//
//   application's thread, in NCCL's call     what NCCL does            what is recorded
//   --------------------------------------   -----------------------   ---------------------------
//   GroupApi start                                                     its end is asked for
//   CollApi start (AwaitEnd)                                           sampled? first of a pair
//   ...                                      launches, reports nothing
//   GroupApi stop (EndGroup)                                           second of the pair; `tail`
//
// Where the end of a group is behind its launch. ncclGroupEndInternal (src/group.cc, 2.28.3 to
// 2.31.2) of a blocking communicator launches on the calling thread (groupLaunch), and stops
// GroupApi behind that. By then each stream of the group waits for the launch (src/enqueue.cc,
// ncclLaunchFinish), so an event on any of them is behind it. Two cases are otherwise:
//
//   a non-blocking      launches on a thread of its own, maybe after GroupApi has stopped. So a
//   communicator        communicator is taken for blocking only once that is known: a launch that
//                       was reported came from the thread that made the call. Where its init
//                       ran says nothing of that.
//   ncclGroupStart      NCCL's profilerGroupDepth does not count it, only its end. So GroupApi may
//   within a group      stop where the inner group ends, before anything was launched. A call alone
//                       (depth 1) has no group around it. Of another group the end is believed
//                       only where a launch of its own was reported before it: all of a group's
//                       launches are made together.
//
// The end also comes when NCCL has failed within the group and launched nothing. So what is alone
// in its group is believed to be launched only if its operation is known to be hidden: on this
// communicator one like it had no launch, a launch was reported later, and none of that operation
// and size was reported alone in between (a second try). Never before the first reported launch,
// never of Send and Recv: one to itself in place launches nothing.
//
// Everywhere else the calls stand as unreported (unreported_calls.h), and what they do is unknown.
//
// The handles 0, 1 and 2 are streams of the current context. At GroupApi's stop that is the
// application's again (cudaSetDevice(savedDev)), maybe another GPU's, so it is asked for then. A
// stream in capture is never recorded on.
//
// No gate stands in front of such a launch: an event in front of it would be in front of what
// orders it behind the communicator's launches on other streams, too. For the same reason it is
// timed only on the stream of the launch before it. What is measured begins with NCCL's own
// preparation (the plan, the wait for other streams), where the GPU has nothing else to do.
#include "plugin/tracker/communicator_parts.h"
#include "plugin/tracker/counting.h"
#include "plugin/tracker/launch_follower.h"

namespace nccl_pulse {

void LaunchFollower::LearnThread(uint64_t group) {
  // The launch has, or has not, a pair of its own.
  GiveEarlyPairUp();
  // A further launch of a group says no more than the first.
  if (calls_.load() == 0) return;
  // 0: not known whose. A group's number is its thread's alone, and a non-blocking communicator's
  // launching thread lives at the same time as the one that calls.
  const bool is_calling_thread = group != 0 && group == group_.load();
  Set(kBlocking, is_calling_thread);
}

void LaunchFollower::AwaitEnd(Instruments& instruments, const Communicator& communicator,
                              const OperationRing& ring, CudaStream stream, bool is_alone) {
  GiveEarlyPairUp();  // of a group whose end did not come
  call_stream_.store(stream);
  reported_before_.store(ring.reported());
  const OperationMeta call = OperationMeta::Unpack(meta_.load());
  if (!is_alone || !hidden_.IsFollowed(OperationRowOf(call.op)) || !Has(kSampled) ||
      !Has(kBlocking) || calls_.load() != 1 || stream != stream_.load() || !is_followed()) {
    return;
  }
  StreamTimer& timer = *instruments.stream_timer;
  if (!timer.IsReachable(timer_, stream) || timer.IsCapturing(timer_, stream) ||
      !instruments.sampler.Spend()) {
    return;
  }
  const uint32_t pair = timer.BeginTiming(timer_, stream);
  if (pair == kNoPair) return;
  const uint64_t bytes = bytes_.load();
  timed_.Carry(pair, 1, call, bytes, BusBytesOf(communicator, call.op, bytes));
  early_pair_.store(static_cast<uint16_t>(pair));
  Set(kEarlyPair, true);
}

uint64_t LaunchFollower::EndGroup(Instruments& instruments, Communicator& communicator,
                                  const OperationRing& ring, uint64_t group, bool is_alone) {
  const uint32_t pair = TakeEarlyPair();
  const uint32_t calls = calls_.load();
  CudaStream const stream = call_stream_.load();
  StreamTimer& timer = *instruments.stream_timer;
  // Other calls than this thread's stand there, or it is not known whose.
  const bool is_group = group != 0 && group == group_.load();
  const RecordWriter record = communicator.Writer(instruments.segment);
  const bool is_behind_launch = is_alone ? calls < 2 : calls == 0;
  // What has no launch is noted before it is known where launches are made.
  if (!is_group || !is_behind_launch || is_launching() ||
      !IsHidden(instruments, ring, record, is_alone) || !knows_thread() ||
      !timer.IsReachable(timer_, stream) || timer.IsCapturing(timer_, stream)) {
    if (pair != kNoPair) StreamTimer::GivePairUp(timer_, pair);
    return 0;
  }
  const uint64_t now_ns = instruments.clock.NowNs();
  // Before the event, as in Stop.
  communicator.Writer(instruments.segment).CountFollowedLaunch(now_ns, false);
  const bool is_timed = pair != kNoPair;
  if (is_timed) EndTiming(instruments, communicator, stream, pair, now_ns);
  timer.End(timer_, stream, now_ns,
            [] { return false; });  // a kernel of symmetric memory does not count
  if (!is_alone || !IsBroadcast()) hides_others_.store(true);
  stream_.store(stream);
  communicator.awaited_ends.Renew();
  if (calls == 1) CountFollowedCall(instruments, communicator, is_timed);
  // Last: whoever finds no call standing finds the launch counted, and does not take the
  // communicator for idle.
  unreported_.EndGroup();
  launch_number_.add(1);
  Set(kSampled | kFirstOfKind, false);
  calls_.publish(0);
  return now_ns;
}

bool LaunchFollower::IsHidden(const Instruments& instruments, const OperationRing& ring,
                              const RecordWriter& record, bool is_alone) {
  const PendingCalls calls = pending();
  if (calls.calls == 0 && !is_alone) {
    // Beside graphs NCCL may report operations after the group's end. Of Send and Recv it is not
    // known which were reported.
    return !record.has_captured() && unreported_.IsLastGroup(calls) &&
           unreported_.IsOfCollectives() && unreported_.HasReported(ring.reported()) &&
           unreported_.Hidden(ring.reported()) != 0;
  }
  const NameId op = OperationMeta::Unpack(meta_.load()).op;
  if (!instruments.IsCollective(op)) return false;
  const uint32_t row = OperationRowOf(op);
  if (calls.calls == 0) {  // its launch was reported
    hidden_.Acquit(row, bytes_.load());
    return false;
  }
  // An operation that was reported before its launch, or late, is told from no other.
  if (ring.reported() != reported_before_.load()) return false;
  return hidden_.Suspect(row, bytes_.load(), record.reported_launches());
}

// Of a group of several it is not known which were launched together: those count as unreported
// (unreported_operations.h).
void LaunchFollower::CountFollowedCall(Instruments& instruments, Communicator& communicator,
                                       bool is_timed) {
  const NameId op = OperationMeta::Unpack(meta_.load()).op;
  if (!instruments.IsCollective(op)) return;
  const uint32_t row = OperationRowOf(op);
  hidden_.NoteFollowed(row);
  if (!is_timed) {
    LaneWriter lane = communicator.ClaimLane(instruments.segment, LaneRole::kOther);
    if (!lane.ok()) return instruments.Ignore(IgnoredReason::kNoRoom);
    if (!instruments.samples()) return CountUntimed(lane, op, UntimedReason::kUnreported);
    CountUntimed(lane, op, UntimedReason::kNotSampled);
  }
  call_numbers_[PlaceOfNumber(row, kFollowedColumn)].add(1);
}

uint32_t LaunchFollower::TakeEarlyPair() {
  if (!Has(kEarlyPair)) return kNoPair;
  Set(kEarlyPair, false);
  return early_pair_.load();
}

void LaunchFollower::GiveEarlyPairUp() {
  const uint32_t pair = TakeEarlyPair();
  if (pair != kNoPair) StreamTimer::GivePairUp(timer_, pair);
}

}  // namespace nccl_pulse
