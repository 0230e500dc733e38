#include "plugin/tracker/communicator_table.h"

#include <sys/mman.h>

#include "plugin/tracker/events.h"

namespace nccl_pulse {
namespace {

void* AllocatePopulated(size_t bytes) {
  // Populated now, because a callback must not fault.
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  return memory == MAP_FAILED ? nullptr : memory;
}

}  // namespace

CommunicatorTable::CommunicatorTable(Instruments& instruments)
    : instruments_(instruments), used_(0), finalized_(0) {
  for (uint32_t i = 0; i < kMaxCommunicators; ++i) {
    slots_[i].index = i;
    slots_[i].first_ticket =
        Ticket::Pack(instruments.process_tag, TicketKind::kOperation, 0, 0, 0, i);
    slots_[i].record = &instruments.segment.record(i);
  }
}

void CommunicatorTable::Refuse(uint64_t context) {
  instruments_.Ignore(instruments_.IsOwn(context, TicketKind::kContext)
                          ? IgnoredReason::kStaleContext
                          : IgnoredReason::kForeignContext);
}

bool CommunicatorTable::Allocate(Communicator& communicator) {
  if (communicator.parts.load() != nullptr) return true;
  const bool kernel = instruments_.times_kernels();
  void* memory = AllocatePopulated(CommunicatorParts::BytesFor(kernel));
  if (memory == nullptr) return false;
  auto* parts = static_cast<CommunicatorParts*>(memory);
  for (Visit* visit : {&parts->calling, &parts->launching, &parts->reporting}) visit->Prepare();
  void* behind = parts + 1;
  if (kernel) {
    parts->channels = static_cast<KernelChannels*>(behind);
  } else {
    parts->first_moves = static_cast<FirstMoves*>(behind);
  }
  // Published last: FindOperation may get here with a forged ticket.
  communicator.parts.publish(parts);
  return true;
}

uint64_t CommunicatorTable::Add(const CommunicatorIdentity& identity, bool has_sight) {
  MakeRoom();
  MakeRoomForLastCalls();
  const int found = FindRecordToUse();
  if (found < 0) return 0;
  Communicator& communicator = slots_[found];
  if (!Allocate(communicator)) return 0;

  RecordWriter record = communicator.Writer(instruments_.segment);
  const uint32_t generation = record.Prepare(
      {identity.comm_id, identity.name != nullptr ? identity.name : "", identity.rank,
       identity.nranks, identity.nnodes, made_++, identity.gpu, identity.uuid, identity.pci_bus_id,
       identity.realtime_ns, identity.api_version, identity.event_mask});
  communicator.record_generation.store(generation);
  communicator.rank.store(identity.rank);
  communicator.nranks.store(identity.nranks);
  communicator.identity_known.store(identity.comm_id != 0);
  communicator.sampling_seed.store(Sampler::SeedOf(identity.comm_id));
  CommunicatorParts& parts = *communicator.parts.load();
  parts.ring.Reset();
  parts.launches.Reset();
  parts.call_kinds.Reset();
  parts.operation_kinds.Reset();
  parts.last_calls.Begin(instruments_.segment, *communicator.record);
  if (parts.channels != nullptr) parts.channels->Reset();
  const bool heartbeat =
      instruments_.stream_timer != nullptr && has_sight &&
      identity.api_version >= kFirstVersionWithLaunches &&
      instruments_.stream_timer->Attach(parts.launches.timer(), instruments_.samples());
  communicator.awaited_ends.Begin(heartbeat);
  communicator.handles.Begin(identity.nnodes);
  if (used_.load() <= communicator.index) {
    used_.publish(communicator.index + 1);  // from now on the poller looks here
  }
  record.Publish(heartbeat ? CompletionSource::kStream : CompletionSource::kNone);

  communicator.context_generation = (communicator.context_generation + 1) & Ticket::kGenerationMask;
  const uint64_t context = Ticket::Pack(instruments_.process_tag, TicketKind::kContext, 0,
                                        communicator.context_generation, 0, communicator.index);
  communicator.context.publish(context);  // publishes the communicator
  ++live_;
  return context;
}

Communicator* CommunicatorTable::Close(uint64_t context) {
  Communicator* communicator = Find(context);
  if (communicator == nullptr) return nullptr;
  communicator->context.Close();
  communicator->parts.load()->last_calls.Close();
  if (instruments_.stream_timer != nullptr) {
    StreamTimer::Retire(communicator->parts.load()->launches.timer(), instruments_.clock.NowNs());
  }
  return communicator;
}

void CommunicatorTable::Finish(Communicator& communicator) {
  communicator.Writer(instruments_.segment).Finalize(instruments_.clock.NowNs());
  finalized_.fetch_add(1);  // a hint, see WantsRoom
  --live_;
  if (live_ == 0) instruments_.names.Clear();
}

}  // namespace nccl_pulse
