#include "plugin/tracker/work_follower.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "plugin/tracker/communicator_parts.h"

namespace nccl_pulse {
namespace {

constexpr int kFirstVersionThatHides = 6;
// NCCL reports a launch microseconds after its call, or when the call's group ends.
constexpr uint64_t kUnlaunchedNs = 5000000000;
// Between two looks at a counter that is proven.
constexpr uint64_t kLookNs = 90000000;
// Bits of Place::counted that are launches; the rest says whose: enough of them to tell a communicator
// from the next few in its place.
constexpr int kLaunchBits = 48;
constexpr uint64_t kLaunchMask = (uint64_t{1} << kLaunchBits) - 1;
// A bit of Place::finished, above the number of calls.
constexpr uint64_t kAreKnown = uint64_t{1} << 32;

// From 2.29.2 on NCCL does not report what a Broadcast launches, and counts it all the same.
bool IsBroadcast(const char* func) { return std::strcmp(func, "Broadcast") == 0; }

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
  Ordered<Place*>& at = communicator.parts.load()->work;
  // Written now, because a callback must not fault.
  if (at.load() == nullptr) at.publish(new (std::nothrow) Place{});
  if (at.load() == nullptr) return;
  Place& place = *at.load();
  Place::Launched& launched = place.launched;
  // Candidates of the last communicator that nobody has taken yet: this one has none.
  const bool is_free = launched.phase.acquire() != Place::kFound;
  launched.captured_calls.store(0);
  launched.alone.store(0);
  launched.grouped.store(0);
  launched.reported.store(0);
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
  for (Relaxed<uint32_t>& sum : place.sums) sum.store(0);
  launched.work.publish(0);  // who sees this sees that the record has a new generation
  if (!is_free) return;
  place.context_at = context_at;
  place.owner = owner;
  // A communicator of one rank launches no kernel that counts.
  launched.phase.publish(context_at != nullptr && owner.nranks > 1 ? Place::kWanted : Place::kIdle);
}

// ---- callbacks ----------------------------------------------------------------------------------

void WorkFollower::NoteLaunch(const Communicator& communicator, bool captured) {
  Place* const place = PlaceOf(communicator);
  if (place == nullptr) return;
  if (place->launched.phase.acquire() == Place::kWanted) Find(communicator, *place);
  if (!captured) return;
  Place::Launched& launched = place->launched;
  launched.captured_calls.store(0);
  launched.unlaunched_captured.add(0 - launched.unlaunched_of_group.load());
  launched.unlaunched_of_group.store(0);
}

void WorkFollower::Find(const Communicator& communicator, Place& place) {
  // Each candidate holds memory of the GPU until the reading thread takes it. While that thread is
  // behind, or held by the driver, a later launch searches.
  const uint64_t now_ns = instruments_.clock.NowNs();
  if (now_ns >= polled_ns_.load() + kPolledNs) return;
  // Relaxed: a bound, which orders nothing.
  if (untaken_.fetch_add(1, std::memory_order_relaxed) >= kMostUntaken) {
    untaken_.fetch_sub(1, std::memory_order_relaxed);
    return;
  }
  place.found.record_generation = communicator.record_generation.load();
  place.found.owner = place.owner;
  place.found.launched_ns = now_ns;
  FindWorkCandidates(*driver_, *work_, place.context_at, &place.found.candidates);
  place.launched.phase.publish(Place::kFound);  // with what was found
}

void WorkFollower::NoteCapturedCall(const Communicator& communicator, bool is_collective,
                                    const char* func, uint64_t group) {
  Place* const place = PlaceOf(communicator);
  if (place == nullptr) return;
  Place::Launched& launched = place->launched;
  if (!is_collective) NoteRefuted(*communicator.parts.load(), WorkRefutal::kPointToPoint);
  if (launched.before_capture.load() == 0) {
    launched.before_capture.store(communicator.record->followed.launches.load() + 1);
  }
  // A call of an earlier group will not be launched any more.
  if (launched.captured_group.load() != group || group == 0) {
    launched.unlaunched_of_group.store(0);
    if (group != 0) launched.captured_calls.store(0);
  }
  launched.captured_group.store(group);
  launched.captured_calls.add(1);
  if (launched.captured_calls.load() > 1) launched.is_group_captured.store(true);
  if (IsBroadcast(func)) return launched.captured_broadcasts.add(1);
  launched.unlaunched_captured.add(1);
  launched.unlaunched_of_group.add(1);
}

bool WorkFollower::MayHideBroadcasts(const Communicator& communicator) {
  return communicator.record->nccl_api_version.load() >= kFirstVersionThatHides;
}

void WorkFollower::NoteRefuted(CommunicatorParts& parts, WorkRefutal refutal) {
  Place* const place = parts.work.acquire();  // sees it made
  if (place == nullptr) return;
  parts.launches.timer().StopCounting();
  place->launched.refutal.store(static_cast<uint8_t>(refutal));
}

void WorkFollower::NoteUnreported(const CommunicatorParts& parts, uint64_t launches) {
  Place* const place = parts.work.acquire();  // sees it made
  if (place == nullptr) return;
  Place::Launched& launched = place->launched;
  // Nothing tells when it ends but its event, and what follows it: that much is never finished before.
  place->sums[launches % Place::kSums].store(static_cast<uint32_t>(launched.work.load()) + 1);
  Ordered<uint64_t>& reported = launched.reported;
  if (reported.load() == launches - 1) reported.publish(launches);  // else more is to be reported
}

void WorkFollower::NoteBroadcast(const CommunicatorParts& parts, uint64_t bytes) {
  Place* const place = parts.work.acquire();  // sees it made
  if (place == nullptr) return;
  Place::Launched& launched = place->launched;
  const uint32_t before = launched.broadcasts.load();
  if (launched.broadcast_bytes.load() != bytes) launched.broadcast_run.store(before);
  launched.broadcast_bytes.store(bytes);
  launched.broadcasts.publish(before + 1);  // with its size, and counted as a call
}

void WorkFollower::NoteCapturedOperation(Place::Launched& launched, const OperationEvent& event) {
  const uint32_t channels = event.channels;
  if (launched.most_channels.load() == 0) launched.least_channels.store(channels);
  launched.least_channels.store(std::min(launched.least_channels.load(), channels));
  launched.most_channels.store(std::max(launched.most_channels.load(), channels));
}

CountedLaunches WorkFollower::Counted(const Communicator& communicator,
                                      uint32_t record_generation) const {
  const Place* const place = PlaceOf(communicator);
  if (place == nullptr) return {};
  const uint64_t counted = place->counted.acquire();  // sees when
  if (PackCounted(record_generation, counted) != counted) return {};
  return {counted & kLaunchMask, place->counted_ns.load()};
}

// ---- reading thread -----------------------------------------------------------------------------

LaunchedWork WorkFollower::Read(const Communicator& communicator, const Place& place) {
  const Place::Launched& launched = place.launched;
  LaunchedWork read;
  read.work = launched.work.acquire();  // sees the rest
  read.alone = launched.alone.load();
  read.grouped = launched.grouped.load();
  read.reported = launched.reported.acquire();
  read.launches = communicator.record->followed.launches.acquire();
  if (MayHideBroadcasts(communicator)) {
    // This order: a captured one is called first.
    const uint32_t captured = launched.captured_broadcasts.load();
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
    Place* const place = PlaceOf(communicator);
    if (place == nullptr) continue;
    const uint32_t looks_before = looks_left_;
    PollPlace(communicator, *place, now_ns);
    // The next round begins behind the last one served: looks may run out, and a copy that waits for
    // the GPU keeps the others of its context from theirs.
    if (looks_left_ != looks_before) first_ = at + 1;
    is_deciding |= IsDeciding(communicator, *place, now_ns);
  }
  for (uint32_t i = 0; i < reader_count_; ++i) {
    is_deciding |= readers_[i].user() != WorkReader::kNobody;
  }
  return is_deciding;
}

bool WorkFollower::IsDeciding(const Communicator& communicator, const Place& place,
                              uint64_t now_ns) const {
  constexpr uint64_t kRecentNs = 1000000000;
  const WorkState state = place.proof.state();
  return (state == WorkState::kLocated || state == WorkState::kCalibrating) &&
         now_ns < communicator.Writer(instruments_.segment).last_launch_ns() + kRecentNs;
}

void WorkFollower::PollPlace(Communicator& communicator, Place& place, uint64_t now_ns) {
  const uint32_t generation = communicator.record_generation.acquire();
  const bool lives = communicator.is_live();
  if (place.record_generation != 0 && (!lives || place.record_generation != generation) &&
      !Leave(communicator, place)) {
    return;
  }
  if (lives && place.record_generation == 0) {
    place.record_generation = generation;
    place.is_stuck = false;
    place.unlaunched_since_ns = 0;
    place.captured_ns = 0;
    place.is_being_proven = false;
    place.proof = {};
    place.finished_calls = {};
    place.proof.Enter(WorkState::kUnknown);
    Publish(communicator, place);  // now: the driver may not return from what follows
  }
  // Acquire: sees what was found.
  if (place.launched.phase.acquire() == Place::kFound && !place.is_mapped) TakeCandidates(place);
  if (!lives) return;
  Follow(communicator, place, now_ns);
  if (const bool is_stuck = IsStuck(place, now_ns); is_stuck != place.is_stuck) {
    place.is_stuck = is_stuck;
    place.is_published = false;
  }
  if (const bool is_new = IsBeingProven(communicator, place, now_ns);
      is_new != place.is_being_proven) {
    place.is_being_proven = is_new;
    place.is_published = false;
  }
  if (!place.is_published) Publish(communicator, place);
}

bool WorkFollower::IsBeingProven(const Communicator& communicator, Place& place, uint64_t now_ns) {
  // An engine that goes on proves it within three.
  constexpr uint64_t kLongNs = 10000000000;
  const WorkState state = place.proof.state();
  const bool is_open = state == WorkState::kUnknown || state == WorkState::kLocated ||
                       state == WorkState::kCalibrating;
  if (!is_open || !communicator.Writer(instruments_.segment).has_captured()) return false;
  if (place.captured_ns == 0) place.captured_ns = now_ns;
  return now_ns - place.captured_ns < kLongNs;
}

void WorkFollower::TakeCandidates(Place& place) {
  place.taken = place.found;
  untaken_.fetch_sub(1, std::memory_order_relaxed);  // as in Find
  place.candidate = 0;
  place.launched.phase.publish(Place::kIdle);
  // Else of a communicator that has ended, or is refuted already.
  if (place.taken.record_generation == place.record_generation &&
      place.proof.state() == WorkState::kUnknown) {
    place.proof.Enter(WorkState::kLocated);
    MapNext(place);
  } else {
    Unmap(place);
  }
}

bool WorkFollower::Leave(Communicator& communicator, Place& place) {
  WorkReader* const reader = place.is_mapped ? ReaderOf(place.taken.candidates) : nullptr;
  // Memory that is being copied has to stay.
  if (reader != nullptr && reader->user() == communicator.index &&
      reader->Look() == WorkReader::Copy::kWaiting) {
    return false;
  }
  Unmap(place);
  if (place.proof.state() != WorkState::kRefuted) {
    place.proof.Enter(WorkState::kGone);
    place.is_stuck = false;
    Publish(communicator, place);
  }
  place.record_generation = 0;
  return true;
}

void WorkFollower::Unmap(Place& place) {
  if (place.is_mapped) {
    place.mapping.Unmap(*work_);
    ++place.candidate;
    place.is_mapped = false;
  }
  ReleaseFrom(place, place.candidate);
}

void WorkFollower::ReleaseFrom(Place& place, uint32_t first) {
  WorkCandidates& candidates = place.taken.candidates;
  for (uint32_t i = first; i < candidates.count; ++i) {
    work_->release_allocation(candidates.candidate[i].allocation);
  }
  candidates.count = std::min(candidates.count, first);
}

void WorkFollower::MapNext(Place& place) {
  WorkCandidates& candidates = place.taken.candidates;
  OpenReader(candidates);
  WorkReader* const reader = ReaderOf(candidates);
  if (reader == nullptr || !reader->Enter()) return Refute(place, WorkRefutal::kCopyFailed);
  if (place.is_mapped) {
    place.mapping.Unmap(*work_);
    ++place.candidate;
  }
  for (; place.candidate < candidates.count; ++place.candidate) {
    place.is_mapped = place.mapping.Map(*driver_, *work_, candidates.candidate[place.candidate]);
    if (place.is_mapped) return;
    candidates.is_other_memory = true;
  }
  place.is_mapped = false;
  Refute(place, candidates.is_other_memory ? WorkRefutal::kNotMapped : WorkRefutal::kNotFound);
}

// Nothing is being copied for it.
void WorkFollower::Refute(Place& place, WorkRefutal refutal) {
  place.proof.Refute(refutal);
  place.counted.publish(0);
  place.finished.publish(0);
  place.is_published = false;
  Unmap(place);
  if (refutal < WorkRefutal::kMoved || refutal > WorkRefutal::kCopyFailed) return;
  // A program may end its context at any time.
  if (refutal == WorkRefutal::kCopyFailed && IsContextGone(place.taken.candidates)) return;
  if (!place.is_untold) ++untold_;
  place.is_untold = true;
}

void WorkFollower::Follow(Communicator& communicator, Place& place, uint64_t now_ns) {
  if (place.proof.state() == WorkState::kRefuted) return;
  WorkReader* const reader = place.is_mapped ? ReaderOf(place.taken.candidates) : nullptr;
  if (reader != nullptr && reader->user() == communicator.index) {
    const WorkReader::Copy copy = reader->Look();
    if (copy == WorkReader::Copy::kWaiting) return;
    if (copy == WorkReader::Copy::kFailed) return Refute(place, WorkRefutal::kCopyFailed);
    Copied(communicator, place);
  }
  if (place.proof.state() == WorkState::kRefuted) return;
  if (const uint8_t why = place.launched.refutal.load(); why != 0) {
    return Refute(place, static_cast<WorkRefutal>(why));
  }
  if (HasUnlaunched(place, now_ns)) return Refute(place, WorkRefutal::kUncounted);
  if (!place.is_mapped) return;  // nothing was launched yet
  if (reader == nullptr) return Refute(place, WorkRefutal::kCopyFailed);
  if (reader->user() == WorkReader::kNobody) LookAt(communicator, place, *reader, now_ns);
}

bool WorkFollower::HasUnlaunched(Place& place, uint64_t now_ns) {
  if (place.launched.unlaunched_captured.load() == 0) {
    place.unlaunched_since_ns = 0;
    return false;
  }
  if (place.unlaunched_since_ns == 0) place.unlaunched_since_ns = now_ns;
  return now_ns - place.unlaunched_since_ns >= kUnlaunchedNs;
}

void WorkFollower::LookAt(Communicator& communicator, Place& place, WorkReader& reader,
                          uint64_t now_ns) {
  const WorkProof& proof = place.proof;
  WorkLook& look = place.look;
  look.now_ns = now_ns;
  look.before = Read(communicator, place);
  look.completed = communicator.parts.load()->launches.timer().completed_by_events();
  if (proof.state() != WorkState::kLocated) {
    const RecordWriter record = communicator.Writer(instruments_.segment);
    if (record.completion_source() != CompletionSource::kStream) {
      return Refute(place, WorkRefutal::kNoEvents);
    }
    const bool may_finish =
        place.launched.broadcasts.load() != 0 && communicator.record->unreported_calls.load() != 0;
    if (!may_finish && !proof.IsNews(look.before, look.completed, record.has_captured())) {
      return Count(communicator, place, now_ns);
    }
    // Only a quiet look calibrates, unless there may be replays.
    if (proof.state() == WorkState::kCalibrating && !record.has_captured() &&
        look.completed != look.before.launches) {
      return;
    }
    if ((proof.state() == WorkState::kProven || record.has_captured()) &&
        now_ns < place.looked_ns + kLookNs) {
      return;
    }
  }
  if (looks_left_ == 0) return;  // its turn comes in a later round
  --looks_left_;
  place.looked_ns = now_ns;
  place.calls_before = communicator.parts.load()->launches.calls();
  const WorkReader::Copy copy = reader.Begin(communicator.index, place.mapping.block(), now_ns);
  if (copy == WorkReader::Copy::kFailed) return Refute(place, WorkRefutal::kCopyFailed);
  if (copy == WorkReader::Copy::kDone) Copied(communicator, place);
}

void WorkFollower::Copied(Communicator& communicator, Place& place) {
  const char* const block = ReaderOf(place.taken.candidates)->block();
  WorkProof& proof = place.proof;
  const CudaAddress at = place.taken.candidates.candidate[place.candidate].at;
  if (proof.state() == WorkState::kLocated) {
    if (!WorkProof::IsBlock(block, at, place.taken.owner)) return MapNext(place);
    if (Place* const other = FindOther(place, at)) {
      Refute(*other, WorkRefutal::kNotFound);
      return Refute(place, WorkRefutal::kNotFound);
    }
    ReleaseFrom(place, place.candidate + 1);
    place.is_published = false;
    return proof.Begin(at, place.taken.owner, place.taken.launched_ns, known_word_);
  }
  WorkLook& look = place.look;
  look.is_launching = communicator.parts.load()->launches.is_launching();
  look.after = Read(communicator, place);
  look.completed_work = CompletedWork(place, look);
  look.is_captured = communicator.Writer(instruments_.segment).has_captured();
  look.is_group_captured =
      place.launched.is_group_captured.load() || place.launched.unlaunched_captured.load() != 0;
  look.least_channels = place.launched.least_channels.load();
  look.most_channels = place.launched.most_channels.load();
  look.has_hidden = HasHidden(communicator);
  look.may_hide = look.has_hidden || MayHide(communicator);
  look.hides_others =
      MayHideBroadcasts(communicator) && communicator.parts.load()->launches.hides_others();
  // If the generation has changed, the values read may be those of the next communicator.
  if (communicator.record_generation.acquire() != place.record_generation) return;
  proof.Take(block, look);
  place.is_published = false;
  if (proof.state() == WorkState::kRefuted) return Refute(place, proof.refutal());
  if (proof.state() == WorkState::kProven) known_word_ = proof.word();
  Count(communicator, place, look.now_ns);
  if (proof.state() == WorkState::kProven && !look.is_captured) FinishCalls(communicator, place);
}

WorkPlace* WorkFollower::FindOther(const Place& place, CudaAddress at) {
  for (Communicator& communicator : *communicators_) {
    Place* const other = PlaceOf(communicator);
    if (other == nullptr || other == &place || !communicator.is_live()) continue;
    const WorkState state = other->proof.state();
    const bool has_block = state == WorkState::kCalibrating || state == WorkState::kProven;
    if (has_block && other->taken.candidates.candidate[other->candidate].at == at) return other;
  }
  return nullptr;
}

void WorkFollower::FinishCalls(const Communicator& communicator, Place& place) {
  const CommunicatorParts& parts = *communicator.parts.load();
  const Place::Launched& launched = place.launched;
  const WorkLook& look = place.look;
  CalledWork called;
  called.broadcasts = launched.broadcasts.acquire();  // sees the rest
  called.run = launched.broadcast_run.load();
  called.bytes = launched.broadcast_bytes.load();
  // Last: whatever is counted above was called.
  const bool all_reported =
      parts.launches.unreported().Standing(parts.launches.pending(), parts.ring.reported()) == 0;
  called.calls = parts.launches.calls();
  if (communicator.record_generation.acquire() != place.record_generation) return;
  const bool is_over =
      all_reported && called.calls == place.calls_before && WorkProof::IsQuiet(look);
  FinishedCalls& finished = place.finished_calls;
  finished.Look(place.proof.sum(), place.proof.first(), called, look.after, is_over);
  if (!finished.is_known()) return;
  // Its reader ignores it where the place has another communicator by now.
  place.finished.publish(PackCounted(place.record_generation, kAreKnown | finished.calls()));
}

uint32_t WorkFollower::UnfinishedCalls(const Communicator& communicator,
                                       uint32_t record_generation) const {
  const Place* const place = is_on() ? PlaceOf(communicator) : nullptr;
  const uint64_t finished = place != nullptr ? place->finished.acquire() : 0;
  if ((finished & kAreKnown) == 0 || PackCounted(record_generation, finished) != finished) {
    return UINT32_MAX;
  }
  return communicator.parts.load()->launches.calls() - static_cast<uint32_t>(finished);
}

void WorkFollower::Count(const Communicator& communicator, Place& place, uint64_t now_ns) {
  // An operation is reported microseconds after its launch. If none comes, NCCL reported it before,
  // or will when the GPU has come so far: nothing tells whether the launch is complete.
  constexpr uint64_t kReportedNs = 1000000000;
  const LaunchedWork& seen = place.look.before;
  const bool is_reported =
      seen.reported == seen.launches ||
      now_ns < communicator.Writer(instruments_.segment).last_launch_ns() + kReportedNs;
  const bool is_counted = place.proof.is_finished_known() && is_reported;
  place.counted_ns.store(is_counted ? now_ns : 0);  // published with the rest
  // Its reader ignores it where the place has another communicator by now.
  place.counted.publish(
      PackCounted(place.record_generation, is_counted ? CompletedLaunches(place) : 0));
}

uint64_t WorkFollower::CompletedLaunches(const Place& place) {
  const WorkLook& look = place.look;
  const Relaxed<uint32_t>* const sums = place.sums;  // seen with what was reported
  const auto finished = static_cast<uint32_t>(place.proof.finished_work());
  // Later ones than the first capture are mixed with replays: an event follows each.
  const uint64_t before_capture = place.launched.before_capture.load();
  uint64_t launch = std::min(look.before.reported, before_capture - 1);  // 0 - 1: no limit
  // More operations of the newest launch may follow.
  if (launch != 0 && launch == look.before.reported &&
      sums[launch % Place::kSums].load() != static_cast<uint32_t>(look.before.work)) {
    --launch;
  }
  // The places of older ones have been written again.
  const uint64_t known =
      look.after.launches < Place::kSums ? 0 : look.after.launches - Place::kSums + 1;
  for (; launch > std::max(look.completed, known); --launch) {
    const uint32_t unfinished = sums[launch % Place::kSums].load() - finished;
    if (static_cast<int32_t>(unfinished) <= 0) return launch;
  }
  return look.completed;
}

uint64_t WorkFollower::CompletedWork(const Place& place, const WorkLook& look) {
  if (look.completed == 0 || look.after.launches - look.completed >= Place::kSums) return 0;
  // If its operation is yet to be reported, its place has what an earlier launch left there.
  const uint32_t since =
      static_cast<uint32_t>(look.before.work) - place.sums[look.completed % Place::kSums].load();
  return look.before.work - std::min<uint64_t>(since, look.before.work);
}

// Says whether there may be launches that NCCL does not report: from 2.29.2 on, with API v6. (Those
// of symmetric kernels, which are older, do not count.)
bool WorkFollower::MayHide(const Communicator& communicator) {
  if (!MayHideBroadcasts(communicator)) return false;
  const FollowedLaunches& followed = communicator.record->followed;
  return communicator.parts.load()->launches.pending().calls != 0 ||
         followed.launches.acquire() != followed.callbacks_of(CallbackKind::kLaunch).acquire();
}

// Says whether a launch may have come behind such a one: a call came after one without a launch, or
// there was a group of several, or a launch of the copy engines.
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
  // If its context was reset, this is the successor, and takes the reader over.
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
  return reader == nullptr || !reader->Enter();  // null: it has a successor
}

bool WorkFollower::IsStuck(const Place& place, uint64_t now_ns) {
  const WorkReader* const reader = place.is_mapped ? ReaderOf(place.taken.candidates) : nullptr;
  return reader != nullptr && reader->user() != WorkReader::kNobody &&
         now_ns - reader->begun_ns() >= kWorkStuckNs;
}

void WorkFollower::Publish(Communicator& communicator, Place& place) {
  // The lane is held so that the record is not recycled meanwhile.
  const LaneWriter lane(instruments_.segment, *communicator.record, place.record_generation,
                        LaneRole::kBackground);
  if (!lane.ok()) return;  // the next round will do it
  const WorkProof& proof = place.proof;
  communicator.Writer(instruments_.segment)
      .StoreWork({place.is_stuck ? WorkState::kStuck : proof.state(), proof.refutal(),
                  proof.are_operations_known(), place.is_being_proven, proof.operations(),
                  proof.moved_ns(), proof.longest_pause_ns()});
  place.is_published = true;
}

const Communicator* WorkFollower::TakeRefuted(CommunicatorTable& communicators,
                                              WorkRefutal* refutal) {
  if (untold_ == 0) return nullptr;
  for (const Communicator& communicator : communicators) {
    Place* const place = PlaceOf(communicator);
    if (place == nullptr || !place->is_untold) continue;
    place->is_untold = false;
    --untold_;
    *refutal = place->proof.refutal();
    return &communicator;
  }
  return nullptr;
}

}  // namespace nccl_pulse
