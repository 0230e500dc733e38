// One entry of the ring of a communicator's last calls. The calling thread writes it, and any
// process may read it.
//
//   word        bits
//   sequence    0 never written; kWriting while it is written; else
//               collectives so far (32) | number of the call on its communicator, from 1 (32)
//   what        number of that kind of call (32) | root or peer, plus one (12) | flags (4) |
//               data type (8) | operation (8)
//   bytes       stream tag (16) | bytes (48)
//   launch      host time in 1024 ns, monotonic (48) | number of its launch (16); 0: not known
//
// The root comes with each collective, whether it has one or not; a rank above 4094 is not known.
//
//   writer                                    reader
//   sequence = kWriting, fence                sequence: 0 or kWriting? nothing here
//   fields                                    copy of the fields
//   sequence = the call's                     fence, sequence once more: another one? drop it
//   launch, when it was made; peer            (a copy has it, or not yet)
//
// One writer at a time: NCCL serialises the calls and the launches of a communicator, whichever
// threads make them; the store of a launch comes before the next turn of the ring therefore. So no
// read-modify-write is needed. A program that breaks NCCL's rule gets entries that are wrong, and
// nothing else: every field is checked by the reader.
//
// Thread: Write, SetLaunch, SetPeer: the calling and the launching thread; Read: any. Cost: six
// stores. Explored by //tests/model:last_call_entry_test.
#ifndef METRICS_LAST_CALL_ENTRY_H_
#define METRICS_LAST_CALL_ENTRY_H_

#include <cstdint>

#include "metrics/atomic_cell.h"

namespace nccl_pulse {

struct LastCallFields {
  uint32_t op;  // indices into the name table, below 256
  uint32_t datatype;
  uint32_t kind_number;  // of its operation and size class, from 0: as TimedCallFields::call_number
  uint32_t flags;
  uint64_t bytes;
  void* stream;
  int32_t root_or_peer = -1;  // -1: not known
};

// The words of an entry.
struct LastCallBits {
  static constexpr uint32_t kCollective = 1;    // else Send or Recv
  static constexpr uint32_t kSameGroup = 2;     // as the call before
  static constexpr uint32_t kCaptured = 4;      // into a CUDA graph
  static constexpr uint32_t kKindNumbered = 8;  // kind_number is known

  static constexpr uint64_t kMostBytes = (uint64_t{1} << 48) - 1;

  static constexpr int kFlagsShift = 16;  // in `what`
  static constexpr int kRootShift = 20;   // likewise
  static constexpr uint32_t kRootMask = 0xfff;

  static constexpr uint32_t Number(uint64_t sequence) { return static_cast<uint32_t>(sequence); }
  static constexpr uint32_t Collectives(uint64_t sequence) {
    return static_cast<uint32_t>(sequence >> 32);
  }
  static constexpr uint64_t What(const LastCallFields& call) {
    return uint64_t{call.kind_number} << 32 | RootOrPeer(call.root_or_peer) |
           call.flags << kFlagsShift | call.datatype << 8 | call.op;
  }
  static constexpr uint32_t RootOrPeer(int32_t rank) {
    const uint32_t place = static_cast<uint32_t>(rank) + 1;
    return (place <= kRootMask ? place : 0) << kRootShift;
  }
  static constexpr uint32_t Op(uint64_t what) { return what & 0xff; }
  static constexpr uint32_t Datatype(uint64_t what) { return what >> 8 & 0xff; }
  static constexpr uint32_t Flags(uint64_t what) { return what >> kFlagsShift & 0xf; }
  static constexpr int32_t RootOrPeerOf(uint64_t what) {  // -1: not known
    return static_cast<int32_t>(what >> kRootShift & kRootMask) - 1;
  }
  static constexpr uint32_t KindNumber(uint64_t what) { return static_cast<uint32_t>(what >> 32); }

  // A stream is told from others by a hash of its handle: an address is nobody's business.
  static uint64_t Bytes(uint64_t bytes, void* stream) {
    return BytesWithin(bytes < kMostBytes ? bytes : kMostBytes, stream);
  }
  // Of kMostBytes at most.
  static uint64_t BytesWithin(uint64_t bytes, void* stream) {
    return reinterpret_cast<uintptr_t>(stream) * 0x9e3779b97f4a7c15ULL >> 48 << 48 | bytes;
  }
  static constexpr uint64_t BytesOf(uint64_t bytes) { return bytes & kMostBytes; }
  static constexpr uint32_t StreamTag(uint64_t bytes) { return static_cast<uint32_t>(bytes >> 48); }

  static constexpr uint64_t Launch(uint64_t monotonic_ns, uint64_t number) {
    return monotonic_ns >> 10 << 16 | (number & 0xffff);
  }
  static constexpr uint64_t LaunchNs(uint64_t launch) { return launch >> 16 << 10; }
  static constexpr uint32_t LaunchNumber(uint64_t launch) { return launch & 0xffff; }
};

template <typename Atomics>
class BasicLastCallEntry {
 public:
  // What Read copies out, the words as they stand: a reader trusts nothing.
  struct Copy {
    uint64_t what, bytes, launch;
  };

  // Words as LastCallBits makes them.
  void Write(uint64_t numbers, uint64_t what, uint64_t bytes) {
    sequence_.store(kWriting, std::memory_order_relaxed);
    // Release: a reader that sees one of the new fields sees kWriting, or what came after it.
    Atomics::Fence(std::memory_order_release);
    what_.store(what);
    bytes_.store(bytes);
    launch_.store(0);
    sequence_.store(numbers, std::memory_order_release);  // with the fields
  }
  // Of the call that stands here. Relaxed: a reader takes it as one more field of that call.
  void SetLaunch(uint64_t launch) { launch_.store(launch); }
  // Likewise, of a Send or Recv that has none yet. `peer`: LastCallBits::RootOrPeer.
  void SetPeer(uint64_t peer) { what_.store(what_.load() | peer); }
  uint64_t what() const { return what_.load(); }

  // By who zeroes the page.
  void Reset() {
    sequence_.store(0, std::memory_order_relaxed);  // the page pool orders it for the next owner
    what_.store(0);
    bytes_.store(0);
    launch_.store(0);
  }

  // The sequence of the call that was copied, 0: there is none that is whole.
  uint64_t Read(Copy* copy) const {
    const uint64_t sequence = sequence_.load(std::memory_order_acquire);  // sees the fields
    if (sequence == 0 || sequence == kWriting) return 0;
    *copy = {what_.load(), bytes_.load(), launch_.load()};
    Atomics::Fence(std::memory_order_acquire);  // the copy comes before the second look
    return sequence_.load(std::memory_order_relaxed) == sequence ? sequence : 0;
  }

 private:
  static constexpr uint64_t kWriting = UINT64_MAX;

  typename Atomics::template Atomic<uint64_t> sequence_;
  Relaxed<uint64_t, Atomics> what_;
  Relaxed<uint64_t, Atomics> bytes_;
  Relaxed<uint64_t, Atomics> launch_;
};

// The pages of a communicator's ring. A finalized one gives them up to a live one while somebody
// may be reading them: who copied entries looks again whether the pages still are the same one's.
//
// Thread: Set, TakeAway: one at a time (the runtime's lock); the rest any.
template <typename Atomics, uint32_t kPages>
class BasicLastCallPages {
 public:
  // Before the record's state is published.
  void Set(uint32_t i, uint16_t page) { pages_[i].store(page); }
  uint16_t page(uint32_t i) const { return pages_[i].load(); }
  // How many there are; 0 is no page.
  uint32_t Read(uint16_t (&pages)[kPages]) const {
    uint32_t count = 0;
    while (count < kPages && (pages[count] = pages_[count].load()) != 0) ++count;
    return count;
  }
  // From now on they may be zeroed and have another owner.
  uint32_t TakeAway(uint16_t (&pages)[kPages]) {
    const uint32_t count = Read(pages);
    for (Relaxed<uint16_t, Atomics>& page : pages_) page.store(0);
    // Release: a reader that sees a zero, or a call of the next owner, finds no page here.
    Atomics::Fence(std::memory_order_release);
    return count;
  }
  // Whether entries that were copied since Read are of this owner.
  bool HasStill(uint16_t first) const {
    Atomics::Fence(std::memory_order_acquire);  // the copies come before the second look
    return pages_[0].load() == first;
  }

 private:
  Relaxed<uint16_t, Atomics> pages_[kPages];
};

using LastCallEntry = BasicLastCallEntry<StdAtomics>;
static_assert(sizeof(LastCallEntry) == 32);

}  // namespace nccl_pulse

#endif  // METRICS_LAST_CALL_ENTRY_H_
