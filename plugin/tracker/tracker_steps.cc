// Tracker, the part that follows the steps of network operations (ProxyStep): what they moved, and
// where they waited.
//
// Which steps are counted. NCCL looks at the event mask when an operation is called, and keeps what
// it saw for all of the operation's ProxyOps and steps (docs/nccl-profiler-api.md#event-mask;
// src/plugin/profiler.cc, sub->eActivationMask). So an operation that was called while the
// ProxyStep bit was on has all its steps reported, also those after the bit went off, and any other
// has none: operations are watched as a whole, short and long ones alike, and no edge of a window
// cuts one. The operations that were called in a time that is watched are a fair share of all,
// hence bytes per watched second is the true rate.
//
// CUDA graphs break that: a captured operation keeps the mask it was captured with for all replays.
// Replays of one graph would be watched always, those of another never. They are left out, unless
// steps are watched always. Their steps get no handle, so NCCL makes one callback for each.
//
// Lines of time, by the states that NCCL reports (docs/nccl-profiler-api.md#network):
//   send      start ... 8 --gpu--> 20 --peer--> 9 --wire--> stop
//   receive   start ... 10 --wire--> 11 --flush--> 12 --gpu--> stop
// A step that stops earlier waited for what it was waiting for. One that never stops (aborted, or a
// receive that NCCL began again) is not counted.
// 20 comes again and again until the network accepts; the first one counts. The first step that
// "moved data" is the first to be offered to the network (20, or 9) or to have arrived (11).
#include <sys/mman.h>

#include <new>

#include "plugin/abi/common.h"
#include "plugin/tracker/bus_bytes.h"
#include "plugin/tracker/tracker.h"

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

// Whether NCCL may report `next` after `phase`. States may be missing, never in another order.
bool Follows(StepPhase next, StepPhase phase) {
  if (next <= phase) return false;
  return phase == StepPhase::kStarted ||
         (phase >= StepPhase::kReceiveWire) == (next >= StepPhase::kReceiveWire);
}

// What a phase's time is: the step's first wait, its second or its third; -1: none.
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

bool Tracker::PrepareSteps(bool always) {
  if (steps_.load(std::memory_order_relaxed) != nullptr) return true;  // one caller at a time
  // Populated now: a callback must not fault. Zeroes are the initial state.
  void* memory = mmap(nullptr, sizeof(StepTable), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (memory == MAP_FAILED) return false;
  watches_graphs_ = always;
  steps_.store(new (memory) StepTable, std::memory_order_release);  // callbacks see all of it
  return true;
}

uint64_t Tracker::StartStep(uint64_t proxy_op) {
  StepTable* steps = steps_.load(std::memory_order_acquire);
  if (steps == nullptr) {
    Ignore(IgnoredReason::kUnrequestedType);
    return 0;
  }
  if (proxy_op == 0) {
    Ignore(IgnoredReason::kUnfollowedStep);
    return 0;
  }
  const OperationRef ref = FindOperation(proxy_op, TicketKind::kProxyOp);
  if (ref.communicator == nullptr) {
    Ignore(IgnoredReason::kForeignHandle);
    return 0;
  }
  if (!IsOpen(ref)) return 0;
  const uint64_t operation = ref.slot->word.load(std::memory_order_relaxed);  // a flag of it alone
  if ((operation & SlotWord::kCaptured) != 0 && !watches_graphs_) {
    Ignore(IgnoredReason::kUnfollowedStep);
    return 0;
  }
  uint64_t word;
  const uint32_t place = NextStepPlace(*steps, &word);
  StepSlot& slot = steps->slots[place];
  const uint32_t generation = (StepWord::Generation(word) + 1) & Ticket::kGenerationMask;
  // Once: who fails met a thread that is a whole ring behind, or ahead, at this very moment.
  // Acquire: the stores below do not move up.
  if (StepWord::Phase(word) == StepPhase::kClaimed ||
      !slot.word.compare_exchange_strong(word, StepWord::Pack(generation, StepPhase::kClaimed),
                                         std::memory_order_acquire, std::memory_order_relaxed)) {
    Ignore(IgnoredReason::kNoRoom);
    return 0;
  }
  // Relaxed: published by the store of the word.
  slot.proxy_op.store(proxy_op, std::memory_order_relaxed);
  slot.bytes.store(0, std::memory_order_relaxed);
  slot.first_wait_ns.store(0, std::memory_order_relaxed);
  slot.second_wait_ns.store(0, std::memory_order_relaxed);
  slot.record_generation.store(ref.communicator->record_generation.load(std::memory_order_relaxed),
                               std::memory_order_relaxed);
  slot.callbacks.store(2, std::memory_order_relaxed);  // start and stop
  slot.word.store(StepWord::Pack(generation, StepPhase::kStarted), std::memory_order_release);
  return Ticket::PackStep(process_tag_, generation, place);
}

// The next place that nobody needs; when kStepProbes in a row are needed, the last of them.
uint32_t Tracker::NextStepPlace(StepTable& steps, uint64_t* word) {
  uint32_t place;
  int probes = 0;
  do {
    // Relaxed: a running number; the place's word orders everything else.
    place = steps.next.fetch_add(1, std::memory_order_relaxed) % StepTable::kPlaces;
    // Acquire: the ProxyOp that is read is this generation's, or a later one's: who claims the
    // place then fails.
    *word = steps.slots[place].word.load(std::memory_order_acquire);
  } while (++probes < kStepProbes && IsNeeded(steps.slots[place], *word));
  return place;
}

// Whether the step there may still go on. What NCCL has left behind ends with its operation.
bool Tracker::IsNeeded(const StepSlot& slot, uint64_t word) {
  if (StepWord::Phase(word) == StepPhase::kFree) return false;
  if (StepWord::Phase(word) == StepPhase::kClaimed) return true;
  // Relaxed: see NextStepPlace.
  const OperationRef ref =
      FindOperation(slot.proxy_op.load(std::memory_order_relaxed), TicketKind::kProxyOp);
  if (ref.communicator == nullptr) return false;
  const uint64_t operation = ref.slot->word.load(std::memory_order_relaxed);  // the word alone
  return SlotWord::Generation(operation) == ref.generation && (operation & SlotWord::kOpen) != 0;
}

// Null, and counted, when the ticket is not of a step that is under way.
StepSlot* Tracker::FindStep(uint64_t ticket, uint64_t* word) {
  StepTable* steps = steps_.load(std::memory_order_acquire);
  const uint32_t place = Ticket::Step(ticket);
  if (!IsOwn(ticket, TicketKind::kProxyStep) || steps == nullptr || place >= StepTable::kPlaces) {
    Ignore(IgnoredReason::kForeignHandle);
    return nullptr;
  }
  StepSlot& slot = steps->slots[place];
  *word = slot.word.load(std::memory_order_acquire);  // the fields are of this generation
  if (StepWord::Generation(*word) != Ticket::Generation(ticket)) {
    Ignore(IgnoredReason::kStaleHandle);
    return nullptr;
  }
  if (StepWord::Phase(*word) <= StepPhase::kClaimed) {
    Ignore(IgnoredReason::kRepeatedStop);
    return nullptr;
  }
  return &slot;
}

void Tracker::RecordStep(uint64_t ticket, int state, const uint64_t* bytes) {
  if (Ticket::Kind(ticket) != TicketKind::kProxyStep) return RecordState(ticket, state);
  uint64_t word;
  StepSlot* slot = FindStep(ticket, &word);
  if (slot == nullptr) return;
  // Relaxed: the step's own thread.
  slot->callbacks.store(slot->callbacks.load(std::memory_order_relaxed) + 1,
                        std::memory_order_relaxed);
  const StepPhase phase = StepWord::Phase(word);
  const StepPhase next = PhaseOfState(state);
  if (next == phase) return;  // 20 on each poll: no clock is read for it
  if (!Follows(next, phase)) return Ignore(IgnoredReason::kUnknownState);
  const uint64_t now_ns = clock_.NowNs();
  // Failure: the place was taken for another step just now. Acquire: the fields are written after.
  if (!slot->word.compare_exchange_strong(word, StepWord::Pack(StepWord::Generation(word), next),
                                          std::memory_order_acq_rel, std::memory_order_relaxed)) {
    return Ignore(IgnoredReason::kStaleHandle);
  }
  // Relaxed: the step's own thread.
  const uint64_t since_ns = slot->since_ns.load(std::memory_order_relaxed);
  const uint64_t wait_ns = now_ns > since_ns ? now_ns - since_ns : 0;
  if (WaitNumber(phase) == 0) slot->first_wait_ns.store(wait_ns, std::memory_order_relaxed);
  if (WaitNumber(phase) == 1) slot->second_wait_ns.store(wait_ns, std::memory_order_relaxed);
  slot->since_ns.store(now_ns, std::memory_order_relaxed);
  if (next == StepPhase::kSendWire || next == StepPhase::kReceiveFlush) {
    if (bytes != nullptr) {
      slot->bytes.store(*bytes, std::memory_order_relaxed);
    } else {
      Ignore(IgnoredReason::kMissingArgument);
    }
  }
  const bool moves_data = next == StepPhase::kSendPeer || next == StepPhase::kReceiveFlush ||
                          (next == StepPhase::kSendWire && phase != StepPhase::kSendPeer);
  if (moves_data) NoteFirstMove(slot->proxy_op.load(std::memory_order_relaxed), now_ns);
}

void Tracker::StopStep(uint64_t ticket) {
  uint64_t word;
  StepSlot* slot = FindStep(ticket, &word);
  if (slot == nullptr) return;
  const StepPhase phase = StepWord::Phase(word);
  const uint64_t now_ns = clock_.NowNs();
  // Relaxed: read while `word` stood, which the swap below proves.
  uint64_t waits_ns[] = {slot->first_wait_ns.load(std::memory_order_relaxed),
                         slot->second_wait_ns.load(std::memory_order_relaxed), 0};
  const uint64_t since_ns = slot->since_ns.load(std::memory_order_relaxed);
  if (const int last = WaitNumber(phase); last >= 0) {
    waits_ns[last] = now_ns > since_ns ? now_ns - since_ns : 0;
  }
  const bool is_send = phase < StepPhase::kReceiveWire;
  StepTotals totals{slot->proxy_op.load(std::memory_order_relaxed),
                    slot->record_generation.load(std::memory_order_relaxed),
                    slot->callbacks.load(std::memory_order_relaxed),
                    is_send ? NetworkDirection::kSend : NetworkDirection::kReceive,
                    slot->bytes.load(std::memory_order_relaxed),
                    {}};
  const auto first = is_send ? NetworkWait::kSendGpu : NetworkWait::kReceiveWire;
  for (int i = 0; i < 3; ++i) totals.wait_ns[static_cast<int>(first) + i] = waits_ns[i];
  // Release: the reads above stay before it.
  if (!slot->word.compare_exchange_strong(
          word, StepWord::Pack(StepWord::Generation(word), StepPhase::kFree),
          std::memory_order_acq_rel, std::memory_order_relaxed)) {
    return Ignore(IgnoredReason::kStaleHandle);
  }
  CountStep(totals);
}

void Tracker::CountStep(const StepTotals& totals) {
  // The ticket was checked when the step started, and communicators' places are never unmapped.
  Communicator& communicator = slots_[Ticket::Communicator(totals.proxy_op)];
  // What ends after finalize is no sample, nor is it one of the communicator that came next.
  // Acquire: pairs with finalize.
  if (communicator.context.load(std::memory_order_acquire) == 0 ||
      communicator.record_generation.load(std::memory_order_relaxed) != totals.record_generation) {
    return Ignore(IgnoredReason::kAfterClose);
  }
  LaneWriter lane(segment_, *communicator.record, totals.record_generation, LaneRole::kProgress);
  if (!lane.ok()) return Ignore(IgnoredReason::kNoRoom);
  Lane& cells = lane.lane();
  AddToCell(cells.callbacks[static_cast<int>(CallbackKind::kStep)], totals.callbacks);
  AddToCell(cells.network_bytes[static_cast<int>(totals.direction)], totals.bytes);
  for (int i = 0; i < kNetworkWaits; ++i) {
    if (totals.wait_ns[i] != 0) AddToCell(cells.network_wait_ns[i], totals.wait_ns[i]);
  }
}

void Tracker::NoteFirstMove(uint64_t proxy_op, uint64_t now_ns) {
  const OperationRef ref = FindOperation(proxy_op, TicketKind::kProxyOp);
  if (ref.communicator == nullptr || ref.communicator->first_moves == nullptr) return;
  const uint64_t word = ref.slot->word.load(std::memory_order_acquire);  // sees the enqueue time
  if (SlotWord::Generation(word) != ref.generation) return;
  std::atomic<uint64_t>& first_move = ref.communicator->first_moves[ref.operation];
  const uint64_t enqueue_ns = ref.slot->enqueue_ns.load(std::memory_order_relaxed);
  const uint64_t mine =
      FirstMove::Pack(ref.generation, now_ns > enqueue_ns ? now_ns - enqueue_ns : 0);
  // Relaxed: a value of its own; the ProxyOp's stop, which comes later, is what publishes it to who
  // settles. Most steps find that they are not the first, and only look.
  uint64_t found = first_move.load(std::memory_order_relaxed);
  while (FirstMove::Generation(found) != ref.generation || found > mine) {
    if (first_move.compare_exchange_weak(found, mine, std::memory_order_relaxed)) return;
  }
}

void Tracker::CountNetworkTime(Communicator& communicator, uint32_t operation,
                               const OperationState& state, LaneWriter& lane) {
  if (communicator.first_moves == nullptr) return;
  std::atomic<uint64_t>& cell = communicator.first_moves[operation];
  // Relaxed: the settler's swap of the word came after the ProxyOps' stops.
  const uint64_t first_move = cell.load(std::memory_order_relaxed);
  if (FirstMove::Generation(first_move) != SlotWord::Generation(state.word) || first_move == 0) {
    return;
  }
  cell.store(0, std::memory_order_relaxed);  // generations come again
  const uint64_t first_ns = FirstMove::DeltaNs(first_move);
  const uint64_t last_ns = LastStop::DeltaNs(state.last_stop);
  CountLatency(
      communicator, lane, LatencyKind::kDurationNetwork, state.meta, state.bytes,
      BusBytes(state.meta.op, state.bytes, communicator.nranks.load(std::memory_order_relaxed)),
      last_ns > first_ns ? last_ns - first_ns : 0, state.enqueue_ns + last_ns);
}

}  // namespace nccl_pulse
