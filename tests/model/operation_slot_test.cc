// A place in the ring of operations, which one operation takes over from another while children of
// the old one still come, and while others settle it or look at it:
//
//   launching thread             progress thread             background thread, finalize
//   claims the place, settles    starts and stops a          settles the operation, or
//   the old operation,           network operation, or the   looks at it
//   publishes the new one        channels of a kernel
//
// An operation is settled at most once, with its own fields, and with the times of all children
// that count as stopped.
#include "tests/model/explore.h"

namespace nccl_pulse {
namespace {

using Slot = BasicOperationSlot<CheckedAtomics>;

// Every field of an operation tells which one it is.
constexpr uint64_t EnqueueNs(uint32_t generation) { return 1000 * (generation + uint64_t{1}); }
constexpr uint64_t Bytes(uint32_t generation) { return 10 * (generation + uint64_t{1}); }
uint64_t Meta(uint32_t generation) {
  return OperationMeta{static_cast<uint8_t>(generation), 0, 2, false, generation}.Pack();
}
constexpr uint64_t kStopNs = 7;  // after its enqueueing

struct Place {
  Slot slot;
  // Generation of the newest operation. Relaxed: NCCL's own order is not relied on.
  Relaxed<uint32_t, CheckedAtomics> newest;
  // When a channel of the kernel started and stopped: the generation, for simplicity.
  Relaxed<uint64_t, CheckedAtomics> start_ns, stop_ns;
  uint32_t settled[4] = {};  // by generation

  void Publish(uint64_t claimed) {
    const uint32_t generation = SlotWord::Generation(claimed);
    slot.Publish(claimed, {Meta(generation), Bytes(generation), EnqueueNs(generation), false});
    newest.store(generation);
  }
  void PublishFirst() { Publish(SlotWord::NextGeneration(0)); }
  static void ExpectWhole(const OperationState& state) {
    const uint32_t generation = state.generation();
    RL_ASSERT(state.enqueue_ns == EnqueueNs(generation));
    RL_ASSERT(state.bytes == Bytes(generation));
    RL_ASSERT(state.meta.call_number == generation);
  }
  void Settle(const OperationState& state) {
    ExpectWhole(state);
    ++settled[state.generation()];
    if (state.has(SlotWord::kKernelSeen)) RL_ASSERT(start_ns.load() >= state.generation());
    if (state.has(SlotWord::kKernelDone)) RL_ASSERT(stop_ns.load() >= state.generation());
    if (state.stopped() == 0) return;
    RL_ASSERT(LastStop::Tag(state.last_stop) == LastStop::TagOf(state.generation()));
    RL_ASSERT(LastStop::DeltaNs(state.last_stop) == kStopNs);
  }
  // As OperationRing::Claim. False: another thread is writing the place.
  bool Replace(bool by_kernel) {
    uint64_t claimed;
    if (by_kernel || !slot.ClaimUnused(&claimed)) {
      OperationState old;
      const auto claim = slot.ClaimUsed(by_kernel, &claimed, &old);
      if (claim == Slot::Claim::kBusy) return false;
      if (claim == Slot::Claim::kSettle) Settle(old);
    }
    Publish(claimed);
    return true;
  }
  // A network operation of the newest operation.
  void RunProxy() {
    const uint32_t generation = newest.load();
    uint32_t number;
    if (slot.StartProxy(generation, &number)) return;
    const Refusal refusal = slot.StopProxy(generation, number, EnqueueNs(generation) + kStopNs);
    (void)refusal;  // it may have been settled meanwhile
  }
  // The first channel of its kernel starts, and a network operation of it.
  void StartKernel() {
    const uint32_t generation = newest.load();
    OperationMeta meta;
    if (slot.ReadMeta(generation, &meta)) return;
    RL_ASSERT(meta.call_number >= generation);
    uint32_t number;
    if (slot.StartProxy(generation, &number)) return;
    start_ns.store(generation);
    const Refusal refusal = slot.SeeKernel(generation);
    (void)refusal;
  }
  // Its last channel stops.
  void FinishKernel() {
    const uint32_t generation = newest.load();
    stop_ns.store(generation);
    OperationState state;
    bool ends_it;
    if (slot.FinishKernel(generation, &state, &ends_it)) return;
    ExpectWhole(state);
    if (ends_it) ++settled[generation];
  }
};

// The place is taken over, beside a child and beside somebody who looks.
struct TakeOver : rl::test_suite<TakeOver, 3> {
  ExecutionBegins begins;
  Place place;

  void before() { place.PublishFirst(); }
  void thread(unsigned index) {
    if (index == 0) {
      place.Replace(false);
      place.Replace(false);
    } else if (index == 1) {
      place.RunProxy();
    } else {
      OperationState state;
      if (place.slot.Look(&state)) Place::ExpectWhole(state);
      const uint32_t generation = place.newest.load();
      uint64_t enqueue_ns;
      if (place.slot.ReadEnqueue(generation, &enqueue_ns)) {
        RL_ASSERT(enqueue_ns >= EnqueueNs(generation));
      }
    }
  }
  void after() {
    for (const uint32_t times : place.settled) RL_ASSERT(times <= 1);
  }
};

// A child, the background thread that settles what is idle, and finalize.
struct Settling : rl::test_suite<Settling, 3> {
  ExecutionBegins begins;
  Place place;

  void before() { place.PublishFirst(); }
  void thread(unsigned index) {
    if (index == 0) {
      place.RunProxy();
    } else if (index == 1) {
      const OperationState state = place.slot.Read();
      Place::ExpectWhole(state);
      if (state.has(SlotWord::kOpen) && place.slot.CloseIf(state)) place.Settle(state);
    } else {
      OperationState state;
      if (place.slot.Close(&state)) place.Settle(state);
    }
  }
  void after() { RL_ASSERT(place.settled[1] == 1); }
};

// Kernel channels: their times are stored before the word tells of them.
struct Kernel : rl::test_suite<Kernel, 4> {
  ExecutionBegins begins;
  Place place;

  void before() { place.PublishFirst(); }
  void thread(unsigned index) {
    if (index < 2) {
      place.Replace(true);
    } else if (index == 2) {
      place.StartKernel();
    } else {
      place.FinishKernel();
    }
  }
  void after() {
    for (const uint32_t times : place.settled) RL_ASSERT(times <= 1);
  }
};

const std::vector<std::string> kFiles = {"operation_slot.h", "operation_slot_impl.h"};

// ClaimUnused keeps its stores behind reads that were made before: to the checker no load ever
// returns what is stored later.
TEST(OperationSlot, APlaceIsTakenOverWhole) {
  EachOrderingMatters<TakeOver>(kFiles, 30000, {"operation_slot.h: ClaimUnused: swap"});
}

// CloseIf keeps reads in front of the swap: as above. The operation is there before the threads
// are, so nobody needs its publication here.
TEST(OperationSlot, AnOperationIsSettledOnce) {
  EachOrderingMatters<Settling>(
      kFiles, 30000,
      {"operation_slot.h: CloseIf: swap", "operation_slot.h: Publish: fence",
       "operation_slot.h: Publish: store", "operation_slot.h: StopProxy: load"});
}

// Nobody looks here, so the fence is not needed. FinishKernel reads no more of an operation than
// what its first load has seen: in the product other threads may have started the channels.
TEST(OperationSlot, KernelTimesAreSeenByWhoSettles) {
  EachOrderingMatters<Kernel>(
      kFiles, 100000,
      {"operation_slot.h: Publish: fence", "operation_slot_impl.h: FinishKernel: failed swap"});
}

}  // namespace
}  // namespace nccl_pulse
