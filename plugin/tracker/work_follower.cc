#include "plugin/tracker/work_follower.h"

#include <algorithm>
#include <new>

#include "plugin/tracker/communicator_parts.h"

namespace nccl_pulse {
namespace {

constexpr int kFirstVersionThatHides = 6;
// After this time, the launch of a captured call counts as unreported: NCCL reports it microseconds
// after the call, or when the call's group ends.
constexpr uint64_t kUnlaunchedNs = 5000000000;
// Pause between two polls of a counter that is proven, or that may count replays.
constexpr uint64_t kLookNs = 90000000;
// Low bits of TrackedWork::counted, for the number of launches. The upper bits tag the
// communicator: they suffice to distinguish it from the next few that use this TrackedWork.
constexpr int kLaunchBits = 48;
constexpr uint64_t kLaunchMask = (uint64_t{1} << kLaunchBits) - 1;
// A bit of TrackedWork::finished, above the number of calls.
constexpr uint64_t kAreKnown = uint64_t{1} << 32;

uint64_t PackCounted(uint32_t record_generation, uint64_t launches) {
  return uint64_t{record_generation} << kLaunchBits | (launches & kLaunchMask);
}

}  // namespace

bool WorkFollower::Begin(const CudaDriver& driver) {
  if (instruments_.stream_timer == nullptr) return false;
  driver_ = &driver;
  work_ = WorkDriver::Load();
  polled_ns_.store(instruments_.clock.NowNs());
  return is_on();
}

void WorkFollower::Attach(const Communicator& communicator, const void* context_at,
                          const WorkOwner& owner) {
  Ordered<TrackedWork*>& at = communicator.parts.load()->work;
  // Written now, because a callback must not fault.
  if (at.load() == nullptr) at.publish(new (std::nothrow) TrackedWork{});
  if (at.load() == nullptr) return;
  TrackedWork& tracked = *at.load();
  TrackedWork::Launched& launched = tracked.launched;
  // False if the last communicator's candidates were not taken yet: then no counter is searched for
  // this communicator.
  const bool is_free = launched.phase.acquire() != TrackedWork::kFound;
  launched.captured_calls.store(0);
  launched.alone.store(0);
  launched.grouped.store(0);
  launched.reported.store(0);
  launched.shared.store(0);
  launched.is_group_captured.store(false);
  launched.unlaunched_captured.store(0);
  launched.unlaunched_of_group.store(0);
  launched.captured_group.store(0);
  launched.before_capture.store(0);
  launched.least_channels.store(0);
  launched.most_channels.store(0);
  launched.refutal.store(static_cast<uint8_t>(WorkRefutal::kNone));
  launched.broadcasts.store(0);
  launched.captured_broadcasts.store(0);
  launched.broadcast_run.store(0);
  launched.broadcast_bytes.store(0);
  for (Relaxed<uint32_t>& sum : tracked.sums) sum.store(0);
  launched.work.publish(0);  // a thread that sees this 0 also sees the record's new generation
  if (!is_free) return;
  tracked.context_at = context_at;
  tracked.owner = owner;
  // A communicator of one rank launches no kernel that counts.
  launched.phase.publish(context_at != nullptr && owner.nranks > 1 ? TrackedWork::kWanted
                                                                   : TrackedWork::kIdle);
}

// ---- callbacks ----------------------------------------------------------------------------------

void WorkFollower::NoteLaunch(const Communicator& communicator, bool captured) {
  TrackedWork* const tracked = WorkOf(communicator);
  if (tracked == nullptr) return;
  if (tracked->launched.phase.acquire() == TrackedWork::kWanted) Find(communicator, *tracked);
  if (!captured) return;
  TrackedWork::Launched& launched = tracked->launched;
  launched.captured_calls.store(0);
  launched.unlaunched_captured.add(0 - launched.unlaunched_of_group.load());
  launched.unlaunched_of_group.store(0);
}

void WorkFollower::Find(const Communicator& communicator, TrackedWork& tracked) {
  // Each candidate holds memory of the GPU until the reading thread takes it. While that thread is
  // behind, or held by the driver, a later launch searches.
  const uint64_t now_ns = instruments_.clock.NowNs();
  if (now_ns >= polled_ns_.load() + kPolledNs) return;
  // Relaxed: a bound, which orders nothing.
  if (untaken_.fetch_add(1, std::memory_order_relaxed) >= kMostUntaken) {
    untaken_.fetch_sub(1, std::memory_order_relaxed);
    return;
  }
  tracked.found.record_generation = communicator.record_generation.load();
  tracked.found.owner = tracked.owner;
  tracked.found.launched_ns = now_ns;
  FindWorkCandidates(*driver_, *work_, tracked.context_at, &tracked.found.candidates);
  tracked.launched.phase.publish(TrackedWork::kFound);  // with the candidates
}

void WorkFollower::NoteCapturedCall(const Communicator& communicator, NameId op, uint64_t group) {
  TrackedWork* const tracked = WorkOf(communicator);
  if (tracked == nullptr) return;
  TrackedWork::Launched& launched = tracked->launched;
  if (!instruments_.IsCollective(op))
    NoteRefuted(*communicator.parts.load(), WorkRefutal::kPointToPoint);
  if (launched.before_capture.load() == 0) {
    launched.before_capture.store(communicator.record->followed.launches.load() + 1);
  }
  // A call of an earlier group will no longer be launched.
  if (launched.captured_group.load() != group || group == 0) {
    launched.unlaunched_of_group.store(0);
    if (group != 0) launched.captured_calls.store(0);
  }
  launched.captured_group.store(group);
  launched.captured_calls.add(1);
  if (launched.captured_calls.load() > 1) launched.is_group_captured.store(true);
  // From 2.29.2 on NCCL does not report a Broadcast's launch, although its counter includes it.
  // Published: a reader of this sum also sees the call in `broadcasts`.
  if (op == kBroadcastName) return launched.captured_broadcasts.publish_sum(1);
  launched.unlaunched_captured.add(1);
  launched.unlaunched_of_group.add(1);
}

bool WorkFollower::MayHideBroadcasts(const Communicator& communicator) {
  return communicator.record->nccl_api_version.load() >= kFirstVersionThatHides;
}

void WorkFollower::NoteRefuted(CommunicatorParts& parts, WorkRefutal refutal) {
  TrackedWork* const tracked = parts.work.acquire();  // sees it as it was initialized
  if (tracked == nullptr || tracked->launched.refutal.load() != 0) return;
  parts.launches.timer().StopCounting();
  tracked->launched.refutal.store(static_cast<uint8_t>(refutal));
}

void WorkFollower::NoteUnreported(const CommunicatorParts& parts, uint64_t launches) {
  TrackedWork* const tracked = parts.work.acquire();  // sees it as it was initialized
  if (tracked == nullptr) return;
  TrackedWork::Launched& launched = tracked->launched;
  // The launch's work is not known. So only its event, or a later launch, shows its end: the sum
  // stored for it can't be reached earlier.
  tracked->sums[launches % TrackedWork::kSums].store(static_cast<uint32_t>(launched.work.load()) +
                                                     1);
  Ordered<uint64_t>& reported = launched.reported;
  if (reported.load() == launches - 1) reported.publish(launches);  // else earlier reports are due
}

void WorkFollower::NoteBroadcast(const CommunicatorParts& parts, uint64_t bytes) {
  TrackedWork* const tracked = parts.work.acquire();  // sees it as it was initialized
  if (tracked == nullptr) return;
  TrackedWork::Launched& launched = tracked->launched;
  const uint32_t before = launched.broadcasts.load();
  if (launched.broadcast_bytes.load() != bytes) launched.broadcast_run.store(before);
  launched.broadcast_bytes.store(bytes);
  launched.broadcasts.publish(before + 1);  // with its size, and counted as a call
}

void WorkFollower::NoteCapturedOperation(TrackedWork::Launched& launched,
                                         const OperationEvent& event) {
  const uint32_t channels = event.channels;
  if (launched.most_channels.load() == 0) launched.least_channels.store(channels);
  launched.least_channels.store(std::min(launched.least_channels.load(), channels));
  launched.most_channels.store(std::max(launched.most_channels.load(), channels));
}

CountedLaunches WorkFollower::Counted(const Communicator& communicator,
                                      uint32_t record_generation) const {
  const TrackedWork* const tracked = WorkOf(communicator);
  if (tracked == nullptr) return {};
  const uint64_t counted = tracked->counted.acquire();  // sees its time
  if (PackCounted(record_generation, counted) != counted) return {};
  return {counted & kLaunchMask, tracked->counted_ns.load()};
}

// ---- reading thread -----------------------------------------------------------------------------

LaunchedWork WorkFollower::Read(const Communicator& communicator, const TrackedWork& tracked) {
  const TrackedWork::Launched& launched = tracked.launched;
  LaunchedWork read;
  read.work = launched.work.acquire();  // sees the rest
  read.alone = launched.alone.load();
  read.grouped = launched.grouped.load();
  read.reported = launched.reported.acquire();
  read.launches = communicator.record->followed.launches.acquire();
  if (MayHideBroadcasts(communicator)) {
    // Captured Broadcasts are read first, because a Broadcast counts as called before it counts as
    // captured.
    const uint32_t captured = launched.captured_broadcasts.acquire();
    read.hidden = launched.broadcasts.acquire() - captured;
  }
  return read;
}

bool WorkFollower::Poll(CommunicatorTable& communicators, uint64_t now_ns) {
  bool is_deciding = false;
  communicators_ = &communicators;
  const auto count = static_cast<uint32_t>(communicators.end() - communicators.begin());
  const uint64_t before_ns = polled_ns_.load();
  const uint64_t earned = now_ns > before_ns ? (now_ns - before_ns) / kNsPerLook : 0;
  polled_ns_.store(before_ns + earned * kNsPerLook);
  looks_left_ = static_cast<uint32_t>(std::min<uint64_t>(looks_left_ + earned, kMostLooks));
  const uint32_t first = first_;
  for (uint32_t i = 0; i < count; ++i) {
    const uint32_t at = (first + i) % count;
    Communicator& communicator = communicators.begin()[at];
    TrackedWork* const tracked = WorkOf(communicator);
    if (tracked == nullptr) continue;
    const uint32_t looks_before = looks_left_;
    PollOne(communicator, *tracked, now_ns);
    // The next round begins after the last communicator served: polls may run out, and a copy that
    // waits for the GPU blocks the others of its context.
    if (looks_left_ != looks_before) first_ = at + 1;
    is_deciding |= IsDeciding(communicator, *tracked, now_ns);
  }
  for (uint32_t i = 0; i < reader_count_; ++i) {
    is_deciding |= readers_[i].user() != WorkReader::kNobody;
  }
  return is_deciding;
}

bool WorkFollower::IsDeciding(const Communicator& communicator, const TrackedWork& tracked,
                              uint64_t now_ns) const {
  constexpr uint64_t kRecentNs = 1000000000;
  const WorkState state = tracked.proof.state();
  return (state == WorkState::kLocated || state == WorkState::kCalibrating) &&
         now_ns < communicator.Writer(instruments_.segment).last_launch_ns() + kRecentNs;
}

void WorkFollower::PollOne(Communicator& communicator, TrackedWork& tracked, uint64_t now_ns) {
  const uint32_t generation = communicator.record_generation.acquire();
  const bool lives = communicator.is_live();
  if (tracked.record_generation != 0 && (!lives || tracked.record_generation != generation) &&
      !Leave(communicator, tracked)) {
    return;
  }
  if (lives && tracked.record_generation == 0) {
    tracked.record_generation = generation;
    tracked.is_stuck = false;
    tracked.unlaunched_since_ns = 0;
    tracked.captured_ns = 0;
    tracked.is_being_proven = false;
    tracked.proof = {};
    tracked.finished_calls = {};
    tracked.proof.Enter(WorkState::kUnknown);
    Publish(communicator, tracked);  // published now, because the next driver call may not return
  }
  // Acquire: sees `found`.
  if (tracked.launched.phase.acquire() == TrackedWork::kFound && !tracked.is_mapped)
    TakeCandidates(tracked);
  if (!lives) return;
  Follow(communicator, tracked, now_ns);
  if (const bool is_stuck = IsStuck(tracked, now_ns); is_stuck != tracked.is_stuck) {
    tracked.is_stuck = is_stuck;
    tracked.is_published = false;
  }
  if (const bool is_new = IsBeingProven(communicator, tracked, now_ns);
      is_new != tracked.is_being_proven) {
    tracked.is_being_proven = is_new;
    tracked.is_published = false;
  }
  if (!tracked.is_published) Publish(communicator, tracked);
}

bool WorkFollower::IsBeingProven(const Communicator& communicator, TrackedWork& tracked,
                                 uint64_t now_ns) {
  // A busy engine proves its counter within three seconds.
  constexpr uint64_t kLongNs = 10000000000;
  const WorkState state = tracked.proof.state();
  const bool is_open = state == WorkState::kUnknown || state == WorkState::kLocated ||
                       state == WorkState::kCalibrating;
  if (!is_open || !communicator.Writer(instruments_.segment).has_captured()) return false;
  if (tracked.captured_ns == 0) tracked.captured_ns = now_ns;
  return now_ns - tracked.captured_ns < kLongNs;
}

void WorkFollower::TakeCandidates(TrackedWork& tracked) {
  tracked.taken = tracked.found;
  untaken_.fetch_sub(1, std::memory_order_relaxed);  // as in Find
  tracked.candidate = 0;
  tracked.launched.phase.publish(TrackedWork::kIdle);
  // Otherwise the communicator has ended, or its counter is already refuted.
  if (tracked.taken.record_generation == tracked.record_generation &&
      tracked.proof.state() == WorkState::kUnknown) {
    tracked.proof.Enter(WorkState::kLocated);
    MapNext(tracked);
  } else {
    Unmap(tracked);
  }
}

bool WorkFollower::Leave(Communicator& communicator, TrackedWork& tracked) {
  WorkReader* const reader = tracked.is_mapped ? ReaderOf(tracked.taken.candidates) : nullptr;
  // Memory that is being copied has to stay.
  if (reader != nullptr && reader->user() == communicator.index &&
      reader->Look() == WorkReader::Copy::kWaiting) {
    return false;
  }
  Unmap(tracked);
  if (tracked.proof.state() != WorkState::kRefuted) {
    tracked.proof.Enter(WorkState::kGone);
    tracked.is_stuck = false;
    Publish(communicator, tracked);
  }
  tracked.record_generation = 0;
  return true;
}

void WorkFollower::Unmap(TrackedWork& tracked) {
  if (tracked.is_mapped) {
    tracked.mapping.Unmap(*work_);
    ++tracked.candidate;
    tracked.is_mapped = false;
  }
  ReleaseFrom(tracked, tracked.candidate);
}

void WorkFollower::ReleaseFrom(TrackedWork& tracked, uint32_t first) {
  WorkCandidates& candidates = tracked.taken.candidates;
  for (uint32_t i = first; i < candidates.count; ++i) {
    work_->release_allocation(candidates.candidate[i].allocation);
  }
  candidates.count = std::min(candidates.count, first);
}

void WorkFollower::MapNext(TrackedWork& tracked) {
  WorkCandidates& candidates = tracked.taken.candidates;
  OpenReader(candidates);
  WorkReader* const reader = ReaderOf(candidates);
  if (reader == nullptr || !reader->Enter()) return Refute(tracked, WorkRefutal::kCopyFailed);
  if (tracked.is_mapped) {
    tracked.mapping.Unmap(*work_);
    ++tracked.candidate;
  }
  for (; tracked.candidate < candidates.count; ++tracked.candidate) {
    tracked.is_mapped =
        tracked.mapping.Map(*driver_, *work_, candidates.candidate[tracked.candidate]);
    if (tracked.is_mapped) return;
    candidates.is_other_memory = true;
  }
  tracked.is_mapped = false;
  Refute(tracked, candidates.is_other_memory ? WorkRefutal::kNotMapped : WorkRefutal::kNotFound);
}

// Refutes the counter. No copy for it may be in progress.
void WorkFollower::Refute(TrackedWork& tracked, WorkRefutal refutal) {
  tracked.proof.Refute(refutal);
  tracked.counted.publish(0);
  tracked.finished.publish(0);
  tracked.is_published = false;
  Unmap(tracked);
  if (refutal < WorkRefutal::kMoved || refutal > WorkRefutal::kCopyFailed) return;
  // A program may end its context at any time.
  if (refutal == WorkRefutal::kCopyFailed && IsContextGone(tracked.taken.candidates)) return;
  if (!tracked.is_untold) ++untold_;
  tracked.is_untold = true;
}

void WorkFollower::Follow(Communicator& communicator, TrackedWork& tracked, uint64_t now_ns) {
  if (tracked.proof.state() == WorkState::kRefuted) return;
  WorkReader* const reader = tracked.is_mapped ? ReaderOf(tracked.taken.candidates) : nullptr;
  if (reader != nullptr && reader->user() == communicator.index) {
    const WorkReader::Copy copy = reader->Look();
    if (copy == WorkReader::Copy::kWaiting) return;
    if (copy == WorkReader::Copy::kFailed) return Refute(tracked, WorkRefutal::kCopyFailed);
    Copied(communicator, tracked);
  }
  if (tracked.proof.state() == WorkState::kRefuted) return;
  if (const uint8_t why = tracked.launched.refutal.load(); why != 0) {
    return Refute(tracked, static_cast<WorkRefutal>(why));
  }
  if (HasUnlaunched(tracked, now_ns)) return Refute(tracked, WorkRefutal::kUncounted);
  if (!tracked.is_mapped) return;  // nothing was launched yet
  if (reader == nullptr) return Refute(tracked, WorkRefutal::kCopyFailed);
  if (reader->user() == WorkReader::kNobody) LookAt(communicator, tracked, *reader, now_ns);
}

bool WorkFollower::HasUnlaunched(TrackedWork& tracked, uint64_t now_ns) {
  if (tracked.launched.unlaunched_captured.load() == 0) {
    tracked.unlaunched_since_ns = 0;
    return false;
  }
  if (tracked.unlaunched_since_ns == 0) tracked.unlaunched_since_ns = now_ns;
  return now_ns - tracked.unlaunched_since_ns >= kUnlaunchedNs;
}

void WorkFollower::LookAt(Communicator& communicator, TrackedWork& tracked, WorkReader& reader,
                          uint64_t now_ns) {
  const WorkProof& proof = tracked.proof;
  WorkLook& look = tracked.look;
  look.now_ns = now_ns;
  look.before = Read(communicator, tracked);
  look.completed = communicator.parts.load()->launches.timer().completed_by_events();
  if (proof.state() != WorkState::kLocated) {
    const RecordWriter record = communicator.Writer(instruments_.segment);
    if (record.completion_source() != CompletionSource::kStream) {
      return Refute(tracked, WorkRefutal::kNoEvents);
    }
    const bool may_finish = tracked.launched.broadcasts.load() != 0 &&
                            communicator.record->unreported_calls.load() != 0;
    if (!may_finish && !proof.IsNews(look.before, look.completed, record.has_captured())) {
      return Count(communicator, tracked, now_ns);
    }
    // Only a quiet poll calibrates, unless there may be replays.
    if (proof.state() == WorkState::kCalibrating && !record.has_captured() &&
        look.completed != look.before.launches) {
      return;
    }
    if ((proof.state() == WorkState::kProven || record.has_captured()) &&
        now_ns < tracked.looked_ns + kLookNs) {
      return;
    }
  }
  if (looks_left_ == 0) return;  // its turn comes in a later round
  --looks_left_;
  tracked.looked_ns = now_ns;
  tracked.calls_before = communicator.parts.load()->launches.calls();
  const WorkReader::Copy copy = reader.Begin(communicator.index, tracked.mapping.block(), now_ns);
  if (copy == WorkReader::Copy::kFailed) return Refute(tracked, WorkRefutal::kCopyFailed);
  if (copy == WorkReader::Copy::kDone) Copied(communicator, tracked);
}

void WorkFollower::Copied(Communicator& communicator, TrackedWork& tracked) {
  const char* const block = ReaderOf(tracked.taken.candidates)->block();
  WorkProof& proof = tracked.proof;
  const CudaAddress at = tracked.taken.candidates.candidate[tracked.candidate].at;
  if (proof.state() == WorkState::kLocated) {
    if (!WorkProof::IsBlock(block, at, tracked.taken.owner)) return MapNext(tracked);
    if (TrackedWork* const other = FindOther(tracked, at)) {
      Refute(*other, WorkRefutal::kNotFound);
      return Refute(tracked, WorkRefutal::kNotFound);
    }
    ReleaseFrom(tracked, tracked.candidate + 1);
    tracked.is_published = false;
    return proof.Begin(at, tracked.taken.owner, tracked.taken.launched_ns, known_word_);
  }
  WorkLook& look = tracked.look;
  look.is_launching = communicator.parts.load()->launches.is_launching();
  look.after = Read(communicator, tracked);
  look.completed_work = CompletedWork(tracked, look);
  look.is_captured = communicator.Writer(instruments_.segment).has_captured();
  look.is_group_captured =
      tracked.launched.is_group_captured.load() || tracked.launched.unlaunched_captured.load() != 0;
  look.least_channels = tracked.launched.least_channels.load();
  look.most_channels = tracked.launched.most_channels.load();
  look.has_hidden = HasHidden(communicator);
  look.may_hide = look.has_hidden || MayHide(communicator);
  look.hides_others =
      MayHideBroadcasts(communicator) && communicator.parts.load()->launches.hides_others();
  // If the generation has changed, the values read may be those of the next communicator.
  if (communicator.record_generation.acquire() != tracked.record_generation) return;
  proof.Take(block, look);
  tracked.is_published = false;
  if (proof.state() == WorkState::kRefuted) return Refute(tracked, proof.refutal());
  if (proof.state() == WorkState::kProven) known_word_ = proof.word();
  Count(communicator, tracked, look.now_ns);
  if (proof.state() == WorkState::kProven && !look.is_captured) FinishCalls(communicator, tracked);
}

TrackedWork* WorkFollower::FindOther(const TrackedWork& tracked, CudaAddress at) {
  for (Communicator& communicator : *communicators_) {
    TrackedWork* const other = WorkOf(communicator);
    if (other == nullptr || other == &tracked || !communicator.is_live()) continue;
    const WorkState state = other->proof.state();
    const bool has_block = state == WorkState::kCalibrating || state == WorkState::kProven;
    if (has_block && other->taken.candidates.candidate[other->candidate].at == at) return other;
  }
  return nullptr;
}

void WorkFollower::FinishCalls(const Communicator& communicator, TrackedWork& tracked) {
  const CommunicatorParts& parts = *communicator.parts.load();
  const TrackedWork::Launched& launched = tracked.launched;
  const WorkLook& look = tracked.look;
  CalledWork called;
  called.broadcasts = launched.broadcasts.acquire();  // sees the rest
  called.run = launched.broadcast_run.load();
  called.bytes = launched.broadcast_bytes.load();
  // Read last, so that everything counted above was called before.
  const bool all_reported =
      parts.launches.unreported().Unlaunched(parts.launches.pending(), parts.ring.reported()) == 0;
  called.calls = parts.launches.calls();
  if (communicator.record_generation.acquire() != tracked.record_generation) return;
  const bool is_over =
      all_reported && called.calls == tracked.calls_before && WorkProof::IsQuiet(look);
  FinishedCalls& finished = tracked.finished_calls;
  finished.Look(tracked.proof.sum(), tracked.proof.first(), called, look.after, is_over);
  if (!finished.is_known()) return;
  // If TrackedWork has another communicator by now, readers ignore the value by its tag.
  tracked.finished.publish(PackCounted(tracked.record_generation, kAreKnown | finished.calls()));
}

uint32_t WorkFollower::UnfinishedCalls(const Communicator& communicator,
                                       uint32_t record_generation) const {
  const TrackedWork* const tracked = is_on() ? WorkOf(communicator) : nullptr;
  const uint64_t finished = tracked != nullptr ? tracked->finished.acquire() : 0;
  if ((finished & kAreKnown) == 0 || PackCounted(record_generation, finished) != finished) {
    return UINT32_MAX;
  }
  return communicator.parts.load()->launches.calls() - static_cast<uint32_t>(finished);
}

void WorkFollower::Count(const Communicator& communicator, TrackedWork& tracked, uint64_t now_ns) {
  // An operation is reported microseconds after its launch. If no report comes, NCCL reported the
  // operation before its launch, or will report it when the GPU reaches it. Whether the launch is
  // complete is then not known.
  constexpr uint64_t kReportedNs = 1000000000;
  const LaunchedWork& seen = tracked.look.before;
  const bool is_reported =
      seen.reported == seen.launches ||
      now_ns < communicator.Writer(instruments_.segment).last_launch_ns() + kReportedNs;
  const bool is_counted = tracked.proof.is_finished_known() && is_reported;
  tracked.counted_ns.store(is_counted ? now_ns : 0);  // published with the rest
  // Readers ignore the value if TrackedWork has another communicator by now, as in FinishCalls.
  tracked.counted.publish(
      PackCounted(tracked.record_generation, is_counted ? CompletedLaunches(tracked) : 0));
}

uint64_t WorkFollower::CompletedLaunches(const TrackedWork& tracked) {
  const WorkLook& look = tracked.look;
  const Relaxed<uint32_t>* const sums = tracked.sums;  // published with `reported`
  const auto finished = static_cast<uint32_t>(tracked.proof.finished_work());
  // Launches after the first capture are mixed with replays. Each of them has an event.
  const uint64_t before_capture = tracked.launched.before_capture.load();
  uint64_t launch = std::min(look.before.reported, before_capture - 1);  // 0 - 1: no limit
  // More operations of the newest launch may follow.
  if (launch != 0 && launch == look.before.reported &&
      sums[launch % TrackedWork::kSums].load() != static_cast<uint32_t>(look.before.work)) {
    --launch;
  }
  // The places of older launches in `sums` have been written again.
  const uint64_t known =
      look.after.launches < TrackedWork::kSums ? 0 : look.after.launches - TrackedWork::kSums + 1;
  for (; launch > std::max(look.completed, known); --launch) {
    const uint32_t unfinished = sums[launch % TrackedWork::kSums].load() - finished;
    if (static_cast<int32_t>(unfinished) <= 0) return launch;
  }
  return look.completed;
}

uint64_t WorkFollower::CompletedWork(const TrackedWork& tracked, const WorkLook& look) {
  if (look.completed == 0 || look.after.launches - look.completed >= TrackedWork::kSums) return 0;
  // If its operation is not reported yet, its place in `sums` has the value of an earlier launch.
  const uint32_t since = static_cast<uint32_t>(look.before.work) -
                         tracked.sums[look.completed % TrackedWork::kSums].load();
  return look.before.work - std::min<uint64_t>(since, look.before.work);
}

// True if there may be launches that NCCL does not report: from 2.29.2 on, with API v6. (Unreported
// symmetric kernels of older releases do not add to the counter.)
bool WorkFollower::MayHide(const Communicator& communicator) {
  if (!MayHideBroadcasts(communicator)) return false;
  const FollowedLaunches& followed = communicator.record->followed;
  return communicator.parts.load()->launches.pending().calls != 0 ||
         followed.launches.acquire() != followed.callbacks_of(CallbackKind::kLaunch).acquire();
}

// True if a launch may have followed an unreported launch: a call came after a call without a
// launch, or there was a group of several calls, or a copy-engine launch.
bool WorkFollower::HasHidden(const Communicator& communicator) {
  if (!MayHideBroadcasts(communicator)) return false;
  // The order matters: callbacks are counted first.
  const uint64_t launches = communicator.record->followed.launches.acquire();
  return communicator.parts.load()->launches.may_hide() ||
         launches > communicator.record->followed.callbacks_of(CallbackKind::kLaunch).load();
}

WorkReader* WorkFollower::FindReader(const WorkCandidates& candidates) {
  WorkReader* const end = readers_ + reader_count_;
  WorkReader* const found = std::find_if(readers_, end, [&](const WorkReader& reader) {
    return reader.Is(candidates.context, candidates.context_id);
  });
  return found != end ? found : nullptr;
}

WorkReader* WorkFollower::ReaderOf(const WorkCandidates& candidates) {
  WorkReader* const reader = FindReader(candidates);
  return reader == nullptr || reader->is_failed() ? nullptr : reader;
}

void WorkFollower::OpenReader(const WorkCandidates& candidates) {
  if (candidates.context == nullptr || FindReader(candidates) != nullptr) return;
  // If the context was reset, its successor takes the reader over.
  WorkReader* const end = readers_ + reader_count_;
  WorkReader* reader = std::find_if(readers_, end, [&](const WorkReader& each) {
    return each.IsAt(candidates.context) && each.user() == WorkReader::kNobody;
  });
  if (reader == end && reader_count_ == kMostContexts) return;
  if (reader == end) ++reader_count_;
  *reader = {};
  reader->Open(*driver_, *work_, candidates.context, candidates.context_id);
}

bool WorkFollower::IsContextGone(const WorkCandidates& candidates) {
  WorkReader* const reader = FindReader(candidates);
  return reader == nullptr || !reader->Enter();  // null: the context has a successor
}

bool WorkFollower::IsStuck(const TrackedWork& tracked, uint64_t now_ns) {
  const WorkReader* const reader = tracked.is_mapped ? ReaderOf(tracked.taken.candidates) : nullptr;
  return reader != nullptr && reader->user() != WorkReader::kNobody &&
         now_ns - reader->begun_ns() >= kWorkStuckNs;
}

void WorkFollower::Publish(Communicator& communicator, TrackedWork& tracked) {
  // The lane is held so that the record is not recycled meanwhile.
  const LaneWriter lane(instruments_.segment, *communicator.record, tracked.record_generation,
                        LaneRole::kBackground);
  if (!lane.ok()) return;  // the next round will do it
  const WorkProof& proof = tracked.proof;
  communicator.Writer(instruments_.segment)
      .StoreWork({tracked.is_stuck ? WorkState::kStuck : proof.state(), proof.refutal(),
                  proof.are_operations_known(), tracked.is_being_proven, proof.operations(),
                  proof.moved_ns(), proof.longest_pause_ns()});
  tracked.is_published = true;
}

const Communicator* WorkFollower::TakeRefuted(CommunicatorTable& communicators,
                                              WorkRefutal* refutal) {
  if (untold_ == 0) return nullptr;
  for (const Communicator& communicator : communicators) {
    TrackedWork* const tracked = WorkOf(communicator);
    if (tracked == nullptr || !tracked->is_untold) continue;
    tracked->is_untold = false;
    --untold_;
    *refutal = tracked->proof.refutal();
    return &communicator;
  }
  return nullptr;
}

}  // namespace nccl_pulse
