#include "metrics/record_writer.h"

#include <algorithm>

#include "metrics/header_writer.h"
#include "metrics/shared_bytes.h"

namespace nccl_pulse {

uint32_t RecordWriter::Prepare(const Identity& identity) {
  const uint32_t generation = record_.life.Begin();
  record_.comm_id.store(identity.comm_id);
  record_.rank.store(identity.rank);
  record_.nranks.store(identity.nranks);
  record_.nnodes.store(identity.nnodes);
  record_.index.store(identity.index);
  record_.init_realtime_ns.store(identity.init_realtime_ns);
  record_.nccl_api_version.store(identity.nccl_api_version);
  record_.event_mask.store(identity.event_mask);
  CopyToShared(record_.name, identity.name);
  CopyToShared(record_.gpu, identity.gpu);
  CopyToShared(record_.uuid, identity.uuid);
  CopyToShared(record_.pci_bus_id, identity.pci_bus_id);
  TakeLastCallChunks();
  return generation;
}

// Gives the record a ring of last calls. Takes all chunks or none: all rings of the process have
// the same size. Does not use the chunks reserved for callbacks.
void RecordWriter::TakeLastCallChunks() {
  SegmentHeader& header = segment_.WritableHeader();
  const uint32_t wanted = header.last_calls / kLastCallsPerChunk;
  if (wanted == 0 || wanted > kLastCallChunks || !HasRoomForLastCalls(segment_)) return;
  uint16_t chunks[kLastCallChunks];
  uint32_t taken = 0;
  while (taken < wanted && (chunks[taken] = segment_.TakeRingChunk()) != kNoChunk) ++taken;
  if (taken < wanted) {
    while (taken > 0) segment_.GiveRingChunkBack(chunks[--taken]);
    return;
  }
  for (uint32_t i = 0; i < wanted; ++i) record_.last_call_chunks.Set(i, chunks[i]);
  header.last_call_chunks_used.add(wanted);
}

void RecordWriter::Publish(CompletionSource source) {
  record_.completion_source.store(static_cast<uint32_t>(source));
  record_.life.Publish();
}

void RecordWriter::Finalize(uint64_t now_ns) {
  record_.finalized_monotonic_ns.store(static_cast<int64_t>(now_ns));
  record_.life.Finalize();
}

bool RecordWriter::Recycle() {
  const int claimed = ClaimLanes();
  if (claimed == kLanes) {
    RecycleEpoch& epoch = HeaderWriter(segment_).recycle_epoch();
    epoch.Begin();
    record_.life.End();
    KeepSums();
    GiveBackChunks();
    GiveBackSeries();
    record_.Reset();
    epoch.End();
  }
  // The next holder finds the lane empty, and the new generation.
  for (int lane = 0; lane < claimed; ++lane) record_.lanes[lane].claim.Release();
  return claimed == kLanes;
}

// Claims lanes in order and returns how many: all, unless one stays busy.
int RecordWriter::ClaimLanes() {
  for (int lane = 0; lane < kLanes; ++lane) {
    bool claimed = false;
    for (int attempt = 0; attempt < kLaneAttempts && !claimed; ++attempt) {
      if (attempt > 0) nanosleep(&kLanePause, nullptr);
      claimed = record_.lanes[lane].claim.TryClaim();
    }
    if (!claimed) return lane;
  }
  return kLanes;
}

// Adds calls of an operation to the process' sums. Readers accept the sums only if the epoch was
// even and did not change.
void RecordWriter::AddToSums(uint32_t op, uint64_t calls, uint64_t bytes) {
  HeaderWriter(segment_).AddRecycledCalls(OperationRowOf(op), calls, bytes);
}

// Adds the record's counts to the process' sums. All lanes are held, so the counts do not change.
void RecordWriter::KeepSums() {
  HeaderWriter header(segment_);
  header.CountRecycled();
  for (const Lane& lane : record_.lanes) {
    for (int kind = 0; kind < kCallbackKinds; ++kind) {
      header.AddRecycledCallbacks(static_cast<CallbackKind>(kind), lane.callbacks[kind].load());
    }
    AddToSums(kOverflowName, lane.overflowed_calls.load(), lane.overflowed_bytes.load());
    const uint16_t chunk = lane.counter_chunk.load();
    if (chunk == kNoChunk) continue;
    const CounterChunk& counters = segment_.counters(chunk);
    for (int series = 0; series < kSeriesPerCommunicator; ++series) {
      const uint64_t key = record_.series[series].key.load();
      if (key == 0 || SeriesKey::Kind(key) != SeriesKind::kCalls) continue;
      AddToSums(SeriesKey::Op(key), counters.series[series].a.load(),
                counters.series[series].b.load());
    }
  }
  // A finalized communicator has no calls or launches, see FollowedLaunches.
  for (const CallbackKind kind : kFollowedCallbacks) {
    header.AddRecycledCallbacks(kind, record_.followed.callbacks_of(kind).load());
  }
}

void RecordWriter::GiveUpLastCalls() {
  RecycleEpoch& epoch = HeaderWriter(segment_).recycle_epoch();
  epoch.Begin();
  GiveRingBack();
  epoch.End();
}

void RecordWriter::GiveRingBack() {
  uint16_t chunks[kLastCallChunks];
  const uint32_t count = record_.last_call_chunks.TakeAway(chunks);
  for (uint32_t i = 0; i < count; ++i) segment_.GiveRingChunkBack(chunks[i]);
  segment_.WritableHeader().last_call_chunks_used.fetch_sub(count);
}

void RecordWriter::GiveBackChunks() {
  const auto give_back = [this](Ordered<uint16_t>& slot) {
    const uint16_t chunk = slot.exchange(kNoChunk);
    if (chunk != kNoChunk) segment_.RecycleChunk(chunk);
  };
  GiveRingBack();
  for (Lane& lane : record_.lanes) give_back(lane.counter_chunk);
  for (SeriesEntry& series : record_.series) {
    for (auto& slot : series.chunk) give_back(slot);
  }
}

void RecordWriter::GiveBackSeries() {
  uint64_t used = 0;
  for (const SeriesEntry& series : record_.series) {
    if (series.key.load() != 0) ++used;
  }
  HeaderWriter(segment_).GiveBackSeries(used);
}

void RecordWriter::Learn(uint64_t comm_id, const char* name, int32_t rank) {
  if (name != nullptr) CopyToShared(record_.name, name);
  // Independent fields: a reader in between shows a name without an id, once.
  record_.rank.store(rank);
  record_.comm_id.store(comm_id);
}

void RecordWriter::Distrust(TrustState why) {
  auto expected = static_cast<uint32_t>(TrustState::kTrusted);
  record_.kernel_trust.replace(expected, static_cast<uint32_t>(why));
}

void RecordWriter::AppendTimedCall(const TimedCallFields& call) {
  const uint64_t number = record_.next_timed_call.fetch_add(1);
  record_.timed_calls[number % kTimedCalls].Write(number, call);
  if (IsAgreedKind(call.kind) && WaitsForAllRanks(call.op)) KeepIfAgreed(number, call);
}

void RecordWriter::KeepIfAgreed(uint64_t number, const TimedCallFields& call) {
  if (call.call_number < kSetUpCalls) return;
  const int64_t end_ns =
      static_cast<int64_t>(call.end_monotonic_ns) + segment_.header().realtime_offset_ns.load();
  if (end_ns < 0) return;
  const uint64_t hash = CallHash(CallSeed(record_.comm_id.load()), OperationRowOf(call.op),
                                 call.size_class, call.call_number);
  // If two threads do this at once, the wrong call may stay. This rank's agreed call then differs
  // from the other ranks' for one second.
  TimedCall& kept = record_.calls_of_moments[end_ns / kMomentNs % kMoments];
  TimedCall::Copy before{};
  if (kept.Read(&before) != 0) {
    const int64_t moment = end_ns / kMomentNs;
    const int64_t moment_before = (static_cast<int64_t>(before.end_monotonic_ns) +
                                   segment_.header().realtime_offset_ns.load()) /
                                  kMomentNs;
    if (moment_before > moment) return;
    const uint64_t hash_before =
        CallHash(CallSeed(record_.comm_id.load()), OperationRowOf(TimedCallKey::Op(before.key)),
                 TimedCallKey::SizeClass(before.key), TimedCallKey::CallNumber(before.key));
    if (moment_before == moment && !IsRarer(hash, hash_before)) return;
  }
  kept.Write(number, call);
}

void RecordWriter::StoreHeartbeat(const Heartbeat& heartbeat) {
  record_.heartbeat.Store(heartbeat);
}

void RecordWriter::StoreOldestOperation(uint64_t enqueue_ns) {
  record_.heartbeat.StoreOldest(enqueue_ns);
}

void RecordWriter::StoreUnreportedCalls(uint64_t calls, uint64_t since_ns, bool in_group) {
  record_.unreported_since_ns.store(since_ns);
  if (in_group) calls |= UnreportedCallsBits::kInGroup;
  record_.unreported_calls.publish(calls);  // a reader that sees the calls also sees their time
}

void RecordWriter::NoteWait(uint64_t last_call, uint64_t waited_ns, uint64_t now_ns) {
  // Uses the slot of the same last call; else a free slot, or the slot of the shortest wait.
  LongWait* slot = &record_.long_waits[0];
  for (LongWait& each : record_.long_waits) {
    if (LongWait::Call(each.what.load()) == last_call) {
      slot = &each;
      break;
    }
    if (LongWait::LongestNs(each.what.load()) < LongWait::LongestNs(slot->what.load())) {
      slot = &each;
    }
  }
  const uint64_t what = slot->what.load();
  const uint64_t when = slot->when.load();
  const uint64_t made_ns = static_cast<uint64_t>(std::max(
      record_.init_realtime_ns.load() - segment_.header().realtime_offset_ns.load(), int64_t{0}));
  uint64_t longest_ns = LongWait::LongestNs(what);
  const bool is_alike = LongWait::AreAlike(longest_ns, waited_ns);
  const bool counts = now_ns <= LongWait::UntilNs(when);
  if (counts && !is_alike && waited_ns < longest_ns) return;
  const bool recurs = is_alike && LongWait::Call(what) == last_call;
  longest_ns = recurs ? std::max(longest_ns, waited_ns) : waited_ns;
  // The time of work before the first pause, or between the ends of two.
  const uint64_t from_ns = recurs ? LongWait::EndedNs(when) : made_ns;
  const uint64_t until_ns = recurs ? now_ns : now_ns - waited_ns;
  const uint64_t period_ns = until_ns > from_ns ? until_ns - from_ns : 0;
  slot->when.store(LongWait::When(now_ns, LongWait::CountsUntilNs(period_ns, now_ns)));
  slot->what.store(LongWait::What(last_call, longest_ns));
}

void RecordWriter::NoteDriverError(uint32_t error, uint64_t now_ns) {
  if (record_.driver_error.load() != 0) return;  // one thread writes it
  record_.driver_error_ns.store(now_ns);
  record_.driver_error.publish(error);  // a reader that sees the error also sees its time
}

void RecordWriter::StoreGraphs(const Graphs& graphs) {
  record_.graph_moved_ns.store(graphs.moved_ns);
  record_.graph_replays_in_flight.publish(graphs.in_flight);
  record_.graph_replays.publish_sum(graphs.new_replays);
  record_.graph_captures.publish(graphs.position.PackCaptures());
  record_.graph_calls.publish(graphs.position.PackCalls());
}

void RecordWriter::StoreWork(const Work& work) {
  record_.work_moved_ns.store(work.moved_ns);
  record_.work_longest_pause_ns.store(work.longest_pause_ns);
  record_.work_operations.publish(work.operations);
  record_.work_status.publish(
      WorkStatus::Pack(work.state, work.refutal, work.are_operations_known, work.is_being_proven));
}

bool RecordWriter::ChangeCompletionSource(CompletionSource from, CompletionSource to) {
  auto expected = static_cast<uint32_t>(from);
  return record_.completion_source.replace(expected, static_cast<uint32_t>(to));
}

}  // namespace nccl_pulse
