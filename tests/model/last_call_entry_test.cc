// A thread writes one call over another in an entry of the ring of last calls, and says when each
// was launched; a reader looks: it gets one call with its own launch, or without one, or none.
#include "tests/model/explore.h"

namespace nccl_pulse {
namespace {

constexpr uint64_t NumbersOf(uint32_t number) { return number | uint64_t{7} << 32; }
constexpr uint64_t WhatOf(uint32_t number) { return number + 2; }
constexpr uint64_t kPeer = uint64_t{1} << 40;
constexpr uint64_t BytesOf(uint32_t number) { return uint64_t{10} * number; }

template <typename Entry>
void WriteCall(Entry& entry, uint32_t number) {
  entry.Write(NumbersOf(number), WhatOf(number), BytesOf(number));
}

void AssertWhole(uint64_t sequence, const BasicLastCallEntry<CheckedAtomics>::Copy& copy) {
  const uint32_t number = LastCallBits::Number(sequence);
  RL_ASSERT(sequence == NumbersOf(number));
  RL_ASSERT(copy.what == WhatOf(number) || copy.what == (WhatOf(number) | kPeer));
  RL_ASSERT(copy.bytes == BytesOf(number));
  RL_ASSERT(copy.launch == 0 || copy.launch == number);
}

struct OneLastCall : rl::test_suite<OneLastCall, 2> {
  ExecutionBegins begins;
  using Entry = BasicLastCallEntry<CheckedAtomics>;
  Entry entry;

  void thread(unsigned index) {
    if (index == 0) {
      for (const uint32_t number : {5, 69, 133}) {
        WriteCall(entry, number);
        entry.SetLaunch(number);
        entry.SetPeer(kPeer);
      }
      return;
    }
    Entry::Copy copy;
    for (int look = 0; look < 2; ++look) {
      const uint64_t sequence = entry.Read(&copy);
      if (sequence != 0) AssertWhole(sequence, copy);
    }
  }
  void after() {
    Entry::Copy copy;
    const uint64_t sequence = entry.Read(&copy);
    RL_ASSERT(LastCallBits::Number(sequence) == 133);
    AssertWhole(sequence, copy);
    RL_ASSERT(copy.launch == 133);
    RL_ASSERT(copy.what == (WhatOf(133) | kPeer));
  }
};

TEST(LastCallEntry, WholeOrNotThere) {
  EachOrderingMatters<OneLastCall>({"last_call_entry.h"}, 20000);
}

// A finalized communicator's chunk goes to another one, while a reader copies from it what it takes
// for the first one's.
struct ChunkHandedOver : rl::test_suite<ChunkHandedOver, 3> {
  ExecutionBegins begins;
  BasicLastCallChunks<CheckedAtomics, 1> first;
  BasicLastCallEntry<CheckedAtomics> entry;
  Ordered<uint32_t, CheckedAtomics> owner;  // the chunk pool, and the next one's init

  void before() {
    first.Set(0, 9);
    WriteCall(entry, 5);
  }
  void thread(unsigned index) {
    if (index == 0) {
      uint16_t chunks[1];
      RL_ASSERT(first.TakeAway(chunks) == 1 && chunks[0] == 9);
      entry.Reset();
      owner.publish(2);
    } else if (index == 1) {
      if (owner.acquire() == 2) WriteCall(entry, 69);
    } else {
      uint16_t chunks[1];
      if (first.Read(chunks) == 0) return;
      BasicLastCallEntry<CheckedAtomics>::Copy copy;
      const uint64_t sequence = entry.Read(&copy);
      // A call that is being written is none, whoever writes it.
      if (sequence == 0 || !first.HasStill(chunks[0])) return;
      RL_ASSERT(LastCallBits::Number(sequence) == 5);
      AssertWhole(sequence, copy);
    }
  }
};

TEST(LastCallEntry, AChunkThatIsHandedOver) { EXPECT_EQ(Explore<ChunkHandedOver>(40000), ""); }

// As above, and the calls come from two threads that the program keeps apart.
struct TwoCallers : rl::test_suite<TwoCallers, 3> {
  ExecutionBegins begins;
  using Entry = BasicLastCallEntry<CheckedAtomics>;
  Ordered<uint32_t, CheckedAtomics> turn;
  Entry entry;

  void thread(unsigned index) {
    if (index == 0) {
      WriteCall(entry, 5);
      turn.publish(1);  // the program's own lock
    } else if (index == 1) {
      if (turn.acquire() == 0) return;
      entry.SetLaunch(5);
      WriteCall(entry, 69);
    } else {
      Entry::Copy copy;
      const uint64_t sequence = entry.Read(&copy);
      if (sequence != 0) AssertWhole(sequence, copy);
    }
  }
};

TEST(LastCallEntry, CallsFromTwoThreads) { EXPECT_EQ(Explore<TwoCallers>(20000), ""); }

}  // namespace
}  // namespace nccl_pulse
