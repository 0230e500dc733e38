// Tracker, the part that makes and ends communicators.
#include <sys/mman.h>

#include "plugin/tracker/tracker.h"

namespace nccl_pulse {
namespace {

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

uint64_t Tracker::AddCommunicator(const CommunicatorIdentity& identity) {
  MakeRoom();
  const int found = FindRecordToUse();
  if (found < 0) return 0;
  Communicator& communicator = slots_[found];
  if (!AllocateSlots(communicator)) return 0;

  RecordWriter record = WriterOf(communicator);
  const uint32_t generation = record.Prepare(
      {identity.comm_id, identity.name != nullptr ? identity.name : "", identity.rank,
       identity.nranks, identity.nnodes, communicators_++, identity.gpu, identity.uuid,
       identity.pci_bus_id, identity.realtime_ns, identity.api_version, identity.event_mask});
  communicator.record_generation.store(generation, std::memory_order_relaxed);
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
  ResetUnreportedCalls(launching);
  launching.captured.calls.store(0, std::memory_order_relaxed);
  launching.captured.stream.store(nullptr, std::memory_order_relaxed);
  const bool heartbeat = WantsHeartbeat() && identity.api_version >= kFirstVersionWithLaunches &&
                         stream_timer_->Attach(launching.timer, timing_ == TimingMode::kAuto);
  if (used_slots_.load(std::memory_order_relaxed) <= communicator.index) {
    used_slots_.store(communicator.index + 1,
                      std::memory_order_release);  // the poller looks here now
  }
  record.Publish(heartbeat ? CompletionSource::kStream : CompletionSource::kNone);

  communicator.context_generation = (communicator.context_generation + 1) & Ticket::kGenerationMask;
  const uint64_t context = Ticket::Pack(process_tag_, TicketKind::kContext, 0,
                                        communicator.context_generation, 0, communicator.index);
  communicator.context.store(context, std::memory_order_release);  // publishes the communicator
  ++live_;
  return context;
}

void Tracker::FinishCommunicator(uint64_t context) {
  Communicator* communicator = FindContext(context);
  if (communicator == nullptr) return;
  // From here on events with this context are stale. Release and acquire: settling comes after.
  communicator->context.exchange(0, std::memory_order_acq_rel);
  if (stream_timer_ != nullptr) StreamTimer::Retire(communicator->launching->timer, clock_.NowNs());
  CountLeftCall(*communicator);
  SettleAll(*communicator);
  WriterOf(*communicator).Finalize(clock_.NowNs());
  finalized_.fetch_add(1, std::memory_order_relaxed);  // a hint, see WantsRoom
  --live_;
  if (live_ == 0) names_.Clear();
}

}  // namespace nccl_pulse
