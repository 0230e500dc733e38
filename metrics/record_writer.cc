#include "metrics/record_writer.h"

#include "metrics/shared_bytes.h"

namespace nccl_pulse {

uint32_t RecordWriter::Prepare(const Identity& identity) {
  // Acquire and release: a reader that sees anything of what follows sees the new generation.
  const uint32_t generation = record_.generation.fetch_add(1, std::memory_order_acq_rel) + 1;
  std::atomic_thread_fence(std::memory_order_release);
  // Relaxed throughout: published by the state.
  record_.comm_id.store(identity.comm_id, std::memory_order_relaxed);
  record_.rank.store(identity.rank, std::memory_order_relaxed);
  __atomic_store_n(&record_.nranks, identity.nranks, __ATOMIC_RELAXED);
  __atomic_store_n(&record_.nnodes, identity.nnodes, __ATOMIC_RELAXED);
  __atomic_store_n(&record_.index, identity.index, __ATOMIC_RELAXED);
  __atomic_store_n(&record_.init_realtime_ns, identity.init_realtime_ns, __ATOMIC_RELAXED);
  __atomic_store_n(&record_.nccl_api_version, identity.nccl_api_version, __ATOMIC_RELAXED);
  __atomic_store_n(&record_.event_mask, identity.event_mask, __ATOMIC_RELAXED);
  CopyToShared(record_.name, identity.name);
  CopyToShared(record_.gpu, identity.gpu);
  CopyToShared(record_.uuid, identity.uuid);
  CopyToShared(record_.pci_bus_id, identity.pci_bus_id);
  return generation;
}

void RecordWriter::Publish(CompletionSource source) {
  record_.completion_source.store(static_cast<uint32_t>(source), std::memory_order_relaxed);
  // Release: who sees it live sees its identity.
  record_.state.store(static_cast<uint32_t>(CommunicatorState::kLive), std::memory_order_release);
}

void RecordWriter::Finalize(uint64_t now_ns) {
  record_.finalized_monotonic_ns.store(static_cast<int64_t>(now_ns), std::memory_order_relaxed);
  // Release: who sees it finalized sees since when, and what was settled last.
  record_.state.store(static_cast<uint32_t>(CommunicatorState::kFinalized),
                      std::memory_order_release);
}

bool RecordWriter::Recycle() {
  const int claimed = ClaimLanes();
  if (claimed == kLanes) {
    std::atomic<uint64_t>& epoch = segment_.header().recycle_epoch;
    epoch.fetch_add(1, std::memory_order_acq_rel);  // odd: readers start again
    // Before the generation: a reader that begins with the new one finds the record free. Release:
    // a reader that finds it free sees the odd epoch, and does not take the sums for whole.
    record_.state.store(static_cast<uint32_t>(CommunicatorState::kFree), std::memory_order_release);
    // Release: see above. Readers that began before drop the record at their end.
    record_.generation.fetch_add(1, std::memory_order_acq_rel);
    std::atomic_thread_fence(std::memory_order_release);  // who reads what follows sees the above
    KeepSums();
    GiveBackPages();
    GiveBackSeries();
    record_.Reset();
    epoch.fetch_add(1, std::memory_order_release);  // even: what is read from now on is whole
  }
  for (int lane = 0; lane < claimed; ++lane) {
    // Release: the next holder sees the lane empty, and the new generation.
    record_.lanes[lane].owner.store(0, std::memory_order_release);
  }
  return claimed == kLanes;
}

// How many, from the first on; all of them unless one stays busy.
int RecordWriter::ClaimLanes() {
  for (int lane = 0; lane < kLanes; ++lane) {
    bool claimed = false;
    for (int attempt = 0; attempt < kLaneAttempts && !claimed; ++attempt) {
      if (attempt > 0) nanosleep(&kLanePause, nullptr);
      uint32_t expected = 0;
      // Acquire: sees the cells as the lane's last holder left them.
      claimed = record_.lanes[lane].owner.compare_exchange_strong(
          expected, 1, std::memory_order_acquire, std::memory_order_relaxed);
    }
    if (!claimed) return lane;
  }
  return kLanes;
}

void RecordWriter::AddToSums(uint32_t op, uint64_t calls, uint64_t bytes) {
  SegmentHeader& header = segment_.header();
  const uint32_t row = OperationRowOf(op);
  // Relaxed: readers take the whole only between two even epochs.
  header.recycled_bytes[row].fetch_add(bytes, std::memory_order_relaxed);
  header.recycled_calls[row].fetch_add(calls, std::memory_order_relaxed);
}

// With all lanes held, so relaxed: nobody else writes what is read here.
void RecordWriter::KeepSums() {
  SegmentHeader& header = segment_.header();
  header.recycled_communicators.fetch_add(1, std::memory_order_relaxed);
  const auto add_callbacks = [&header](int kind, uint64_t callbacks) {
    header.recycled_callbacks[kind].fetch_add(callbacks, std::memory_order_relaxed);
  };
  for (const Lane& lane : record_.lanes) {
    for (int kind = 0; kind < kCallbackKinds; ++kind) {
      add_callbacks(kind, lane.callbacks[kind].load(std::memory_order_relaxed));
    }
    AddToSums(kOverflowName, lane.overflowed_calls.load(std::memory_order_relaxed),
              lane.overflowed_bytes.load(std::memory_order_relaxed));
    const uint16_t page = lane.counter_page.load(std::memory_order_relaxed);
    if (page == kNoPage) continue;
    const CounterPage& counters = segment_.counters(page);
    for (int series = 0; series < kSeriesPerCommunicator; ++series) {
      const uint64_t key = record_.series[series].key.load(std::memory_order_relaxed);
      if (key == 0 || SeriesKey::Kind(key) != SeriesKind::kCalls) continue;
      AddToSums(SeriesKey::Op(key), counters.series[series].a.load(std::memory_order_relaxed),
                counters.series[series].b.load(std::memory_order_relaxed));
    }
  }
  // Nobody calls or launches on a communicator that was finalized: see FollowedLaunches.
  const FollowedLaunches& followed = record_.followed;
  add_callbacks(static_cast<int>(CallbackKind::kLaunch),
                followed.callbacks.load(std::memory_order_relaxed));
  // A call that found no lane to be counted in, even at the end.
  const uint64_t uncounted = followed.uncounted_call.load(std::memory_order_relaxed);
  if (uncounted != 0) {
    add_callbacks(static_cast<int>(CallbackKind::kApi), 1);
    AddToSums(SeriesKey::Op(uncounted), 1,
              followed.uncounted_bytes.load(std::memory_order_relaxed));
  }
}

void RecordWriter::GiveBackPages() {
  // Relaxed: the lanes are held.
  const auto give_back = [this](std::atomic<uint16_t>& slot) {
    const uint16_t page = slot.exchange(kNoPage, std::memory_order_relaxed);
    if (page != kNoPage) segment_.RecyclePage(page);
  };
  for (Lane& lane : record_.lanes) give_back(lane.counter_page);
  for (SeriesEntry& series : record_.series) {
    for (auto& slot : series.page) give_back(slot);
  }
}

void RecordWriter::GiveBackSeries() {
  uint64_t used = 0;
  for (const SeriesEntry& series : record_.series) {
    if (series.key.load(std::memory_order_relaxed) != 0) ++used;
  }
  // Relaxed: a budget, it orders nothing.
  segment_.header().series_used.fetch_sub(used, std::memory_order_relaxed);
}

void RecordWriter::Learn(uint64_t comm_id, const char* name, int32_t rank) {
  if (name != nullptr) CopyToShared(record_.name, name);
  // Relaxed: each stands alone; a reader between them shows a name without an id once.
  record_.rank.store(rank, std::memory_order_relaxed);
  record_.comm_id.store(comm_id, std::memory_order_relaxed);
}

void RecordWriter::Distrust(TrustState why) {
  auto expected = static_cast<uint32_t>(TrustState::kTrusted);
  // Relaxed: a flag.
  record_.kernel_trust.compare_exchange_strong(expected, static_cast<uint32_t>(why),
                                               std::memory_order_relaxed);
}

void RecordWriter::AppendTimedCall(const TimedCallEntry& timed) {
  // Relaxed: numbers the entry; its sequence publishes it.
  const uint64_t number = record_.next_timed_call.fetch_add(1, std::memory_order_relaxed);
  TimedCall& call = record_.timed_calls[number % kTimedCalls];
  call.sequence.store(0, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);  // a reader of the new fields sees the zero
  call.key.store(TimedCall::PackKey(timed.op, timed.kind, timed.size_class, timed.call_number),
                 std::memory_order_relaxed);
  call.bytes.store(timed.bytes, std::memory_order_relaxed);
  call.duration_ns.store(timed.duration_ns, std::memory_order_relaxed);
  call.end_monotonic_ns.store(timed.end_monotonic_ns, std::memory_order_relaxed);
  call.sequence.store(number + 1, std::memory_order_release);  // publishes the fields
}

void RecordWriter::StoreHeartbeat(const Heartbeat& heartbeat) {
  // Since when before how many: a reader that sees work in flight finds its age.
  StoreOldestOperation(heartbeat.oldest_inflight_ns);
  record_.oldest_launch.store(
      OldestLaunchBits::Pack(heartbeat.launches_completed + 1, heartbeat.oldest_launch),
      std::memory_order_relaxed);
  record_.launches_completed.store(heartbeat.launches_completed, std::memory_order_release);
}

void RecordWriter::StoreOldestOperation(uint64_t enqueue_ns) {
  record_.oldest_inflight_ns.store(enqueue_ns, std::memory_order_relaxed);  // see StoreHeartbeat
}

void RecordWriter::StoreUnreportedCalls(uint64_t calls, uint64_t since_ns) {
  record_.unreported_since_ns.store(since_ns, std::memory_order_relaxed);
  // Release: a reader that sees calls finds since when.
  record_.unreported_calls.store(calls, std::memory_order_release);
}

void RecordWriter::NoteWait(uint32_t row, uint64_t waited_ns) {
  Cell& longest_ns = record_.longest_wait_ns[row];
  // Relaxed: one writer, and a figure that stands alone.
  if (waited_ns > longest_ns.load(std::memory_order_relaxed)) {
    longest_ns.store(waited_ns, std::memory_order_relaxed);
  }
}

void RecordWriter::StoreGraphs(const Graphs& graphs) {
  // Relaxed: one writer, and figures that stand alone.
  record_.graph_moved_ns.store(graphs.moved_ns, std::memory_order_relaxed);
  record_.graph_replays_in_flight.store(graphs.in_flight, std::memory_order_relaxed);
  record_.graph_replays.store(
      record_.graph_replays.load(std::memory_order_relaxed) + graphs.new_replays,
      std::memory_order_relaxed);
}

bool RecordWriter::ChangeCompletionSource(CompletionSource from, CompletionSource to) {
  auto expected = static_cast<uint32_t>(from);
  // Relaxed: what goes with it stands alone.
  return record_.completion_source.compare_exchange_strong(expected, static_cast<uint32_t>(to),
                                                           std::memory_order_relaxed);
}

}  // namespace nccl_pulse
