// Tracker, the part that makes, ends and reuses communicators.
#include <sys/mman.h>
#include <time.h>

#include <algorithm>

#include "metrics/shared_bytes.h"
#include "plugin/tracker.h"

namespace nccl_pulse {
namespace {

// A finalized communicator's numbers stay readable for this long, unless its place is needed.
constexpr uint64_t kKeepFinalizedNs = 600ULL * 1000000000ULL;

void* AllocatePopulated(size_t bytes) {
  // Populated now: a callback must not fault.
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  return memory == MAP_FAILED ? nullptr : memory;
}

}  // namespace

bool Tracker::AllocateSlots(Communicator& communicator) {
  if (communicator.operations != nullptr) return true;
  // Zeroes are the initial state of all of them.
  struct Common {
    OperationSlot operations[kOperationSlots];
    LaunchState launching;
  };
  struct Default : Common {
    std::atomic<uint64_t> first_moves[kOperationSlots];
  };
  struct Kernel : Common {
    KernelTimes times[kOperationSlots];
    KernelTrust trust;
  };
  const bool kernel = timing_ == TimingMode::kKernel;
  void* memory = AllocatePopulated(kernel ? sizeof(Kernel) : sizeof(Default));
  if (memory == nullptr) return false;
  if (kernel) {
    communicator.kernel_times = static_cast<Kernel*>(memory)->times;
    communicator.kernel_trust = &static_cast<Kernel*>(memory)->trust;
  } else {
    communicator.first_moves = static_cast<Default*>(memory)->first_moves;
  }
  auto* common = static_cast<Common*>(memory);
  communicator.launching = &common->launching;
  // Last, and with release: FindOperation may meet this slot with a made-up ticket.
  __atomic_store_n(&communicator.operations, &common->operations[0], __ATOMIC_RELEASE);
  return true;
}

int Tracker::FindRecordToUse() {
  // A record never used, else the one finalized longest ago: what is kept for ten minutes gives way
  // only when there is no other place.
  int oldest = -1;
  int64_t oldest_ns = INT64_MAX;
  const auto now_ns = static_cast<int64_t>(clock_.NowNs());
  int expired = -1;
  // Records from there on may lie where the kernel refused memory: not even reading is safe.
  const uint32_t present = segment_.header().records_present.load(std::memory_order_relaxed);
  for (uint32_t i = 0; i < kMaxCommunicators; ++i) {
    if (i >= present) return expired >= 0 ? expired : static_cast<int>(i);
    const CommunicatorRecord& record = *slots_[i].record;
    // Init lock: nobody else changes states.
    const auto state = static_cast<CommunicatorState>(record.state.load(std::memory_order_relaxed));
    if (state == CommunicatorState::kFree) return expired >= 0 ? expired : static_cast<int>(i);
    if (state != CommunicatorState::kFinalized) continue;
    const int64_t finalized_ns = record.finalized_monotonic_ns.load(std::memory_order_relaxed);
    if (expired < 0 && now_ns - finalized_ns > static_cast<int64_t>(kKeepFinalizedNs)) {
      expired = static_cast<int>(i);  // reused before fresh memory is touched
    }
    if (finalized_ns < oldest_ns) {
      oldest_ns = finalized_ns;
      oldest = static_cast<int>(i);
    }
  }
  return oldest;
}

bool Tracker::Recycle(Communicator& communicator) {
  CommunicatorRecord& record = *communicator.record;
  SegmentHeader& header = segment_.header();
  header.recycle_epoch.fetch_add(1, std::memory_order_acq_rel);  // odd: readers start again
  // Readers drop the record, and writers that come now give their lane back (LaneWriter).
  record.generation.fetch_add(1, std::memory_order_acq_rel);
  std::atomic_thread_fence(std::memory_order_release);  // whoever reads what follows sees the above
  communicator.record_generation.store(record.generation.load(std::memory_order_relaxed),
                                       std::memory_order_relaxed);
  record.state.store(static_cast<uint32_t>(CommunicatorState::kFree), std::memory_order_release);

  bool claimed_all = true;
  for (Lane& lane : record.lanes) {
    bool claimed = false;
    for (int attempt = 0; attempt < kLaneAttempts && !claimed; ++attempt) {
      uint32_t expected = 0;
      claimed = lane.owner.compare_exchange_strong(expected, 1, std::memory_order_acquire);
      if (!claimed) nanosleep(&kLanePause, nullptr);
    }
    claimed_all &= claimed;
    if (!claimed) continue;
    for (int kind = 0; kind < kCallbackKinds; ++kind) {
      header.recycled_callbacks[kind].fetch_add(
          lane.callbacks[kind].load(std::memory_order_relaxed), std::memory_order_relaxed);
      lane.callbacks[kind].store(0, std::memory_order_relaxed);
    }
    const int index = static_cast<int>(&lane - record.lanes);
    const uint16_t counters = lane.counter_page.exchange(kNoPage, std::memory_order_relaxed);
    if (counters != kNoPage) segment_.RecyclePage(counters);
    for (SeriesEntry& series : record.series) {
      const uint16_t page = series.page[index].exchange(kNoPage, std::memory_order_relaxed);
      if (page != kNoPage) segment_.RecyclePage(page);
    }
    lane.launches.store(0, std::memory_order_relaxed);
    lane.last_launch_ns.store(0, std::memory_order_relaxed);
    lane.last_completion_ns.store(0, std::memory_order_relaxed);
    lane.overflowed_operations.store(0, std::memory_order_relaxed);
    for (Cell& cell : lane.network_bytes) cell.store(0, std::memory_order_relaxed);
    for (Cell& cell : lane.network_wait_ns) cell.store(0, std::memory_order_relaxed);
  }
  // Nobody calls or launches on a communicator that was finalized: see FollowedLaunches.
  header.recycled_callbacks[static_cast<int>(CallbackKind::kLaunch)].fetch_add(
      record.followed.callbacks.load(std::memory_order_relaxed), std::memory_order_relaxed);
  record.followed.callbacks.store(0, std::memory_order_relaxed);
  record.followed.launches.store(0, std::memory_order_relaxed);
  record.followed.last_launch_ns.store(0, std::memory_order_relaxed);
  record.followed.uncounted_call.store(0, std::memory_order_relaxed);
  record.followed.last_call.store(0, std::memory_order_relaxed);
  if (claimed_all) {
    // An operation that began while its communicator ended was settled by nobody, and must not be
    // by the next one. Relaxed: whoever holds no lane claims no place.
    for (uint32_t i = 0; communicator.operations != nullptr && i < kOperationSlots; ++i) {
      communicator.operations[i].word.fetch_and(~SlotWord::kOpen, std::memory_order_relaxed);
    }
    uint64_t series_freed = 0;
    for (SeriesEntry& series : record.series) {
      if (series.key.exchange(0, std::memory_order_relaxed) != 0) ++series_freed;
    }
    header.series_used.fetch_sub(series_freed, std::memory_order_relaxed);
    record.series_count.store(0, std::memory_order_relaxed);
    for (TimedCall& call : record.timed_calls) call.sequence.store(0, std::memory_order_relaxed);
    record.kernel_trust.store(0, std::memory_order_relaxed);
    for (Lane& lane : record.lanes)
      lane.owner.store(0, std::memory_order_release);  // hands it all over
  }
  header.recycle_epoch.fetch_add(1, std::memory_order_release);
  // A lane that stayed busy: its holder would write into the next communicator. The record is given
  // up.
  if (!claimed_all) {
    record.state.store(static_cast<uint32_t>(CommunicatorState::kFinalized),
                       std::memory_order_relaxed);
    record.finalized_monotonic_ns.store(INT64_MAX, std::memory_order_relaxed);
  }
  return claimed_all;
}

uint64_t Tracker::AddCommunicator(const CommunicatorIdentity& identity) {
  const int found = FindRecordToUse();
  if (found < 0) return 0;
  Communicator& communicator = slots_[found];
  CommunicatorRecord& record = *communicator.record;
  const auto state = static_cast<CommunicatorState>(record.state.load(std::memory_order_relaxed));
  if (state == CommunicatorState::kFinalized) {
    if (!Recycle(communicator)) return 0;
  } else if (!segment_.PopulateRecord(static_cast<uint32_t>(found))) {
    return 0;
  }
  if (!AllocateSlots(communicator)) return 0;

  record.generation.fetch_add(1, std::memory_order_acq_rel);
  communicator.record_generation.store(record.generation.load(std::memory_order_relaxed),
                                       std::memory_order_relaxed);
  record.comm_id.store(identity.comm_id, std::memory_order_relaxed);  // published by the state
  record.rank.store(identity.rank, std::memory_order_relaxed);
  __atomic_store_n(&record.nranks, identity.nranks, __ATOMIC_RELAXED);
  __atomic_store_n(&record.nnodes, identity.nnodes, __ATOMIC_RELAXED);
  __atomic_store_n(&record.index, communicators_++, __ATOMIC_RELAXED);
  __atomic_store_n(&record.init_realtime_ns, identity.realtime_ns, __ATOMIC_RELAXED);
  CopyToShared(record.name, identity.name != nullptr ? identity.name : "");
  CopyToShared(record.gpu, identity.gpu);
  CopyToShared(record.uuid, identity.uuid);
  CopyToShared(record.pci_bus_id, identity.pci_bus_id);
  communicator.rank.store(identity.rank, std::memory_order_relaxed);
  communicator.nranks.store(identity.nranks, std::memory_order_relaxed);
  communicator.identity_known.store(identity.comm_id != 0, std::memory_order_relaxed);
  if (communicator.kernel_trust != nullptr) {
    communicator.kernel_trust->failed_history.store(0, std::memory_order_relaxed);
    for (auto& start : communicator.kernel_trust->last_start_ns) {
      start.store(0, std::memory_order_relaxed);
    }
  }
  LaunchState& launching = *communicator.launching;
  const uint64_t first = launching.pending.next_operation.load(std::memory_order_relaxed);
  communicator.first_operation.store(first, std::memory_order_relaxed);
  communicator.oldest_open.store(first, std::memory_order_relaxed);
  communicator.sampling_seed.store(Sampler::SeedOf(identity.comm_id), std::memory_order_relaxed);
  for (auto& row : launching.call_numbers) {
    for (auto& number : row) number.store(0, std::memory_order_relaxed);
  }
  launching.pending.calls.store(0, std::memory_order_relaxed);
  for (auto& serial : launching.pending.timed_serials) serial.store(0, std::memory_order_relaxed);
  launching.pending.is_open.store(false, std::memory_order_relaxed);
  launching.pending.is_unhurried.store(true, std::memory_order_relaxed);
  launching.pending.unstopped.store(0, std::memory_order_relaxed);
  launching.pending.grouped_launches.store(0, std::memory_order_relaxed);
  launching.pending.fate.store(static_cast<uint8_t>(LaunchFate::kNotTimed),
                               std::memory_order_relaxed);
  record.captured.store(0, std::memory_order_relaxed);
  record.launches_completed.store(0, std::memory_order_relaxed);
  record.oldest_inflight_ns.store(0, std::memory_order_relaxed);
  record.oldest_launch.store(0, std::memory_order_relaxed);
  ResetVisibility(communicator, identity);
  const bool heartbeat = WantsHeartbeat() && identity.api_version >= kFirstVersionWithLaunches &&
                         stream_timer_->Attach(launching.timer, timing_ == TimingMode::kAuto);
  record.completion_source.store(
      static_cast<uint32_t>(heartbeat ? CompletionSource::kStream : CompletionSource::kNone),
      std::memory_order_relaxed);
  if (used_slots_.load(std::memory_order_relaxed) <= communicator.index) {
    used_slots_.store(communicator.index + 1,
                      std::memory_order_release);  // the poller looks here now
  }
  record.state.store(static_cast<uint32_t>(CommunicatorState::kLive), std::memory_order_release);

  communicator.context_generation = (communicator.context_generation + 1) & Ticket::kGenerationMask;
  const uint64_t context = Ticket::Pack(process_tag_, TicketKind::kContext, 0,
                                        communicator.context_generation, 0, communicator.index);
  communicator.context.store(context, std::memory_order_release);  // publishes the communicator
  ++live_;
  return context;
}

void Tracker::ResetVisibility(Communicator& communicator, const CommunicatorIdentity& identity) {
  // Relaxed: published by the record's state.
  CommunicatorRecord& record = *communicator.record;
  __atomic_store_n(&record.nccl_api_version, identity.api_version, __ATOMIC_RELAXED);
  __atomic_store_n(&record.event_mask, identity.event_mask, __ATOMIC_RELAXED);
  record.unreported_calls.store(0, std::memory_order_relaxed);
  record.unreported_since_ns.store(0, std::memory_order_relaxed);
  for (Cell& longest : record.longest_wait_ns) longest.store(0, std::memory_order_relaxed);
  ResetUnreportedCalls(*communicator.launching);
}

void Tracker::FinishCommunicator(uint64_t context) {
  Communicator* communicator = FindContext(context);
  if (communicator == nullptr) return;
  // From here on events with this context are stale. Release and acquire: settling comes after.
  communicator->context.exchange(0, std::memory_order_acq_rel);
  if (stream_timer_ != nullptr) StreamTimer::Retire(communicator->launching->timer, clock_.NowNs());
  CountLeftCall(*communicator);
  SettleAll(*communicator);
  communicator->record->finalized_monotonic_ns.store(static_cast<int64_t>(clock_.NowNs()),
                                                     std::memory_order_relaxed);
  communicator->record->state.store(static_cast<uint32_t>(CommunicatorState::kFinalized),
                                    std::memory_order_release);
  --live_;
  if (live_ == 0) names_.Clear();
}

uint32_t Tracker::CountUnused() const {
  uint32_t count = 0;
  for (const Communicator& communicator : slots_) {
    if (communicator.context.load(std::memory_order_acquire) == 0) continue;
    // Relaxed: an estimate of what will soon be needed.
    const bool unused =
        std::all_of(std::begin(communicator.record->lanes), std::end(communicator.record->lanes),
                    [](const Lane& lane) {
                      return lane.counter_page.load(std::memory_order_relaxed) == kNoPage;
                    });
    if (unused) ++count;
  }
  return count;
}

}  // namespace nccl_pulse
