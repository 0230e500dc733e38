// LaunchFollower for launches that NCCL does not report: the end of the group is used in place of
// the launch.
//
//   application's thread, in NCCL's call     what NCCL does            what is recorded
//   --------------------------------------   -----------------------   ---------------------------
//   GroupApi start                                                     request for the group's end
//   CollApi start (AwaitEnd)                                           sampled? first of a pair
//   ...                                      launches, reports nothing
//   GroupApi stop (EndGroup)                                           second of the pair; `tail`
//
// When does a group end after its launch? For a blocking communicator, ncclGroupEndInternal
// (src/group.cc, 2.28.3 to 2.31.2) launches on the calling thread (groupLaunch) and then stops
// GroupApi. By then each stream of the group waits for the launch (src/enqueue.cc,
// ncclLaunchFinish), so an event recorded on any of them comes after it. There are two exceptions:
//
//   a non-blocking      launches on its own thread, maybe after GroupApi has stopped. It counts as
//   communicator        non-blocking until a launch is reported by the thread that made the call.
//                       The thread of its init proves nothing.
//   ncclGroupStart      NCCL's profilerGroupDepth counts only its end, not its start. So GroupApi
//   within a group      may stop at the end of the inner group, before anything was launched. A
//                       call alone (depth 1) has no group around it. In any other group, the end
//                       is trusted only after a launch of that group was reported: all launches
//                       of a group are made together.
//
// A group also ends if NCCL has failed within it and launched nothing. So a call alone in its group
// counts as launched only if NCCL is known to hide its operation (hidden_operations.h): an earlier
// call of the same operation on this communicator had no launch, launches were reported since, and
// the operation was not reported alone with either call's size. This never holds before the first
// reported launch, nor for Send and Recv: a Send to the rank itself in place launches nothing.
//
// In all other cases the calls stay unreported (unreported_calls.h) and their progress is unknown.
//
// The handles 0, 1 and 2 are streams of the current context. When GroupApi stops, the current
// context is the application's again (cudaSetDevice(savedDev)) and may be that of another GPU, so
// it is checked then. No event is recorded on a stream in capture.
//
// Such a launch has no gate: an event before the launch would also come before the waits that order
// it behind the communicator's launches on other streams. For the same reason it is timed only on
// the stream of the previous launch. The measured time includes NCCL's own preparation (the plan,
// the wait for other streams) if the GPU is idle meanwhile.
#include "plugin/tracker/communicator_parts.h"
#include "plugin/tracker/counting.h"
#include "plugin/tracker/launch_follower.h"

namespace nccl_pulse {

void LaunchFollower::LearnThread(uint64_t group) {
  // The launch is reported, so it has its own pair if it is timed.
  GiveEarlyPairUp();
  // Only the first launch of a group counts.
  if (calls_.load() == 0) return;
  // Group 0: unknown thread. Threads that live at the same time, as the calling and the launching
  // thread of a non-blocking communicator do, have different group numbers but for a rare chance.
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
  // False if the pending calls belong to another thread, or to an unknown one.
  const bool is_group = group != 0 && group == group_.load();
  const RecordWriter record = communicator.Writer(instruments.segment);
  const bool is_behind_launch = is_alone ? calls < 2 : calls == 0;
  // IsHidden comes before knows_thread: it must learn from calls even while the launching thread is
  // not known.
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
  // Last: a reader that finds no pending call must find the launch counted, or it would take the
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
    // If there are graphs, NCCL may report operations after the group's end. For Send and Recv it
    // is not known which calls the reported operations belong to.
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
  // If NCCL has reported an operation meanwhile, it may belong to this call or to another.
  if (ring.reported() != reported_before_.load()) return false;
  return hidden_.Suspect(row, bytes_.load(), record.reported_launches());
}

// Counts a call, alone in its group, whose launch was replaced by the group's end. In a group of
// several calls it is not known which calls were launched together, so these count as unreported
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
  call_numbers_[IndexOfNumber(row, kFollowedColumn)].add(1);
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
