#include "plugin/tracker/network_steps.h"

#include <sys/mman.h>

#include <new>

#include "plugin/abi/common.h"
#include "plugin/tracker/ticket.h"

namespace nccl_pulse {
namespace {

StepPhase PhaseOfState(int state) {
  switch (state) {
    case abi::kStateProxyStepSendGpuWait:
      return StepPhase::kSendGpu;
    case abi::kStateProxyStepSendPeerWait:
      return StepPhase::kSendPeer;
    case abi::kStateProxyStepSendWait:
      return StepPhase::kSendWire;
    case abi::kStateProxyStepRecvWait:
      return StepPhase::kReceiveWire;
    case abi::kStateProxyStepRecvFlushWait:
      return StepPhase::kReceiveFlush;
    case abi::kStateProxyStepRecvGpuWait:
      return StepPhase::kReceiveGpu;
    default:
      return StepPhase::kFree;
  }
}

// True if NCCL may report `next` after `phase`. Phases may be left out, but their order is fixed.
bool Follows(StepPhase next, StepPhase phase) {
  if (next <= phase) return false;
  return phase == StepPhase::kStarted ||
         (phase >= StepPhase::kReceiveWire) == (next >= StepPhase::kReceiveWire);
}

// Returns the number of the wait that `phase` belongs to: 0, 1 or 2, or -1 if it is not a wait.
int WaitNumber(StepPhase phase) {
  switch (phase) {
    case StepPhase::kSendGpu:
    case StepPhase::kReceiveWire:
      return 0;
    case StepPhase::kSendPeer:
    case StepPhase::kReceiveFlush:
      return 1;
    case StepPhase::kSendWire:
    case StepPhase::kReceiveGpu:
      return 2;
    default:
      return -1;
  }
}

}  // namespace

bool NetworkSteps::Prepare(bool always) {
  if (steps_.load() != nullptr) return true;  // one caller at a time
  // Populated now, because a callback must not fault. Zeroes are the initial state.
  void* memory = mmap(nullptr, sizeof(StepTable), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (memory == MAP_FAILED) return false;
  watches_graphs_ = always;
  steps_.publish(new (memory) StepTable);  // callbacks see all of it
  return true;
}

uint64_t NetworkSteps::Start(uint64_t proxy_op) {
  StepTable* steps = steps_.acquire();
  if (steps == nullptr) {
    instruments_.Ignore(IgnoredReason::kUnrequestedType);
    return 0;
  }
  if (proxy_op == 0) {
    instruments_.Ignore(IgnoredReason::kUnfollowedStep);
    return 0;
  }
  const OperationRef ref = communicators_.FindOperation(proxy_op, TicketKind::kProxyOp);
  if (ref.communicator == nullptr) {
    instruments_.Ignore(IgnoredReason::kForeignHandle);
    return 0;
  }
  const OperationSlot& operation = ref.slot();
  if (const Refusal refusal = operation.Check(ref.generation)) {
    instruments_.Ignore(*refusal);
    return 0;
  }
  if (operation.IsCaptured() && !watches_graphs_) {
    instruments_.Ignore(IgnoredReason::kUnfollowedStep);
    return 0;
  }
  uint64_t word;
  const uint32_t place = NextSlot(*steps, &word);
  StepSlot& slot = steps->slots[place];
  const uint32_t generation = (StepWord::Generation(word) + 1) & Ticket::kGenerationMask;
  // Tried once: it fails only if another thread claims this place at the same moment. Acquire: the
  // stores below do not move up.
  if (StepWord::Phase(word) == StepPhase::kClaimed ||
      !slot.word.compare_exchange_strong(word, StepWord::Pack(generation, StepPhase::kClaimed),
                                         std::memory_order_acquire, std::memory_order_relaxed)) {
    instruments_.Ignore(IgnoredReason::kNoRoom);
    return 0;
  }
  // Published by the store of the word.
  slot.proxy_op.store(proxy_op);
  slot.bytes.store(0);
  slot.first_wait_ns.store(0);
  slot.second_wait_ns.store(0);
  slot.record_generation.store(ref.communicator->record_generation.load());
  slot.callbacks.store(2);  // start and stop
  slot.word.store(StepWord::Pack(generation, StepPhase::kStarted), std::memory_order_release);
  return Ticket::PackStep(instruments_.process_tag, generation, place);
}

uint32_t NetworkSteps::NextSlot(StepTable& steps, uint64_t* word) {
  // Relaxed: `next` only spreads the steps; the word of the place orders everything else.
  const uint32_t number = steps.next.fetch_add(1);
  uint32_t place;
  uint32_t probe = 0;
  do {
    place = StepTable::PlaceOf(number, probe);
    // Acquire: the ProxyOp that is read belongs to this generation or a later one. If it is a later
    // one, claiming the place fails.
    *word = steps.slots[place].word.load(std::memory_order_acquire);
  } while (probe++ < StepTable::kProbes && IsNeeded(steps.slots[place], *word));
  return place;
}

bool NetworkSteps::IsNeeded(const StepSlot& slot, uint64_t word) {
  if (StepWord::Phase(word) == StepPhase::kFree) return false;
  if (StepWord::Phase(word) == StepPhase::kClaimed) return true;
  // See NextSlot.
  const OperationRef ref = communicators_.FindOperation(slot.proxy_op.load(), TicketKind::kProxyOp);
  return ref.communicator != nullptr && ref.slot().IsOpen(ref.generation);
}

StepSlot* NetworkSteps::Find(uint64_t ticket, uint64_t* word) {
  StepTable* steps = steps_.acquire();
  const uint32_t place = Ticket::Step(ticket);
  if (!instruments_.IsOwn(ticket, TicketKind::kProxyStep) || steps == nullptr ||
      place >= StepTable::kSlots) {
    instruments_.Ignore(IgnoredReason::kForeignHandle);
    return nullptr;
  }
  StepSlot& slot = steps->slots[place];
  *word = slot.word.load(std::memory_order_acquire);  // the fields are of this generation
  if (StepWord::Generation(*word) != Ticket::Generation(ticket)) {
    instruments_.Ignore(IgnoredReason::kStaleHandle);
    return nullptr;
  }
  if (StepWord::Phase(*word) <= StepPhase::kClaimed) {
    instruments_.Ignore(IgnoredReason::kRepeatedStop);
    return nullptr;
  }
  return &slot;
}

void NetworkSteps::Record(uint64_t ticket, int state, const uint64_t* bytes) {
  uint64_t word;
  StepSlot* slot = Find(ticket, &word);
  if (slot == nullptr) return;
  // Only the step's own thread writes this.
  slot->callbacks.add(1);
  const StepPhase phase = StepWord::Phase(word);
  const StepPhase next = PhaseOfState(state);
  if (next == phase) return;  // NCCL repeats state 20 at each poll
  if (!Follows(next, phase)) return instruments_.Ignore(IgnoredReason::kUnknownState);
  const uint64_t now_ns = instruments_.clock.NowNs();
  // On failure the place was just taken for another step. Acquire: the fields are written
  // afterwards.
  if (!slot->word.compare_exchange_strong(word, StepWord::Pack(StepWord::Generation(word), next),
                                          std::memory_order_acq_rel, std::memory_order_relaxed)) {
    return instruments_.Ignore(IgnoredReason::kStaleHandle);
  }
  // Only the step's own thread uses these.
  const uint64_t since_ns = slot->since_ns.load();
  const uint64_t wait_ns = now_ns > since_ns ? now_ns - since_ns : 0;
  if (WaitNumber(phase) == 0) slot->first_wait_ns.store(wait_ns);
  if (WaitNumber(phase) == 1) slot->second_wait_ns.store(wait_ns);
  slot->since_ns.store(now_ns);
  if (next == StepPhase::kSendWire || next == StepPhase::kReceiveFlush) {
    if (bytes != nullptr) {
      slot->bytes.store(*bytes);
    } else {
      instruments_.Ignore(IgnoredReason::kMissingArgument);
    }
  }
  const bool moves_data = next == StepPhase::kSendPeer || next == StepPhase::kReceiveFlush ||
                          (next == StepPhase::kSendWire && phase != StepPhase::kSendPeer);
  if (moves_data) NoteFirstMove(slot->proxy_op.load(), now_ns);
}

void NetworkSteps::Stop(uint64_t ticket) {
  uint64_t word;
  StepSlot* slot = Find(ticket, &word);
  if (slot == nullptr) return;
  const StepPhase phase = StepWord::Phase(word);
  const uint64_t now_ns = instruments_.clock.NowNs();
  // The fields belong to `word`: the swap below fails if it has changed.
  uint64_t waits_ns[] = {slot->first_wait_ns.load(), slot->second_wait_ns.load(), 0};
  const uint64_t since_ns = slot->since_ns.load();
  if (const int last = WaitNumber(phase); last >= 0) {
    waits_ns[last] = now_ns > since_ns ? now_ns - since_ns : 0;
  }
  const bool is_send = phase < StepPhase::kReceiveWire;
  StepTotals totals{slot->proxy_op.load(),
                    slot->record_generation.load(),
                    slot->callbacks.load(),
                    is_send ? NetworkDirection::kSend : NetworkDirection::kReceive,
                    slot->bytes.load(),
                    {},
                    now_ns};
  const auto first = is_send ? NetworkWait::kSendGpu : NetworkWait::kReceiveWire;
  for (int i = 0; i < 3; ++i) totals.wait_ns[static_cast<int>(first) + i] = waits_ns[i];
  // Release: the reads above stay before the swap.
  if (!slot->word.compare_exchange_strong(
          word, StepWord::Pack(StepWord::Generation(word), StepPhase::kFree),
          std::memory_order_acq_rel, std::memory_order_relaxed)) {
    return instruments_.Ignore(IgnoredReason::kStaleHandle);
  }
  Count(totals);
}

void NetworkSteps::Count(const StepTotals& totals) {
  // The ticket was checked when the step started, and communicators' places are never unmapped.
  Communicator& communicator = communicators_.At(totals.proxy_op);
  // A step that ends after finalize is not counted: its place may belong to another communicator.
  // Acquire: pairs with finalize.
  if (!communicator.is_live() ||
      communicator.record_generation.load() != totals.record_generation) {
    return instruments_.Ignore(IgnoredReason::kAfterClose);
  }
  LaneWriter lane(instruments_.segment, *communicator.record, totals.record_generation,
                  LaneRole::kProgress);
  if (!lane.ok()) return instruments_.Ignore(IgnoredReason::kNoRoom);
  Lane& cells = lane.lane();
  cells.callbacks[static_cast<int>(CallbackKind::kStep)].publish_sum(totals.callbacks);
  cells.network_bytes[static_cast<int>(totals.direction)].publish_sum(totals.bytes);
  for (int i = 0; i < kNetworkWaits; ++i) {
    if (totals.wait_ns[i] != 0) cells.network_wait_ns[i].publish_sum(totals.wait_ns[i]);
  }
  cells.network_moved_ns.store(totals.ended_ns);
}

void NetworkSteps::NoteFirstMove(uint64_t proxy_op, uint64_t now_ns) {
  const OperationRef ref = communicators_.FindOperation(proxy_op, TicketKind::kProxyOp);
  if (ref.communicator == nullptr || ref.parts->first_moves == nullptr) return;
  uint64_t enqueue_ns;
  if (!ref.slot().ReadEnqueue(ref.generation, &enqueue_ns)) return;
  Relaxed<uint64_t>& first_move = (*ref.parts->first_moves)[ref.place];
  const uint64_t mine =
      FirstMove::Pack(ref.generation, now_ns > enqueue_ns ? now_ns - enqueue_ns : 0);
  // Relaxed: the ProxyOp's stop, which comes later, publishes it to the thread that settles. Most
  // steps find that they are not the first, and only read.
  uint64_t found = first_move.load();
  while (FirstMove::Generation(found) != ref.generation || found > mine) {
    if (first_move.replace(found, mine)) return;
  }
}

}  // namespace nccl_pulse
