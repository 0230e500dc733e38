// LastCallEntry is one entry of a communicator's ring of last calls. The calling thread writes it;
// any process may read it.
//
//   word        bits
//   sequence    0 never written; kWriting while it is written; else
//               collectives so far (32) | number of the call on its communicator, from 1 (32)
//   what        number among calls of its operation and size class (32) | root or peer, plus one;
//               0: not known (12) | flags (4) | data type (8) | operation (8)
//   bytes       hash of the stream's handle (16) | bytes (48)
//   launch      host time in 1024 ns, monotonic (48) | number of its launch (16); 0: not known
//
// NCCL passes a root with every collective, even if the operation has none. Ranks above 4094 do not
// fit, and are stored as not known.
//
//   writer                                    reader
//   sequence = kWriting, fence                sequence: if 0 or kWriting, no entry
//   fields                                    copy of the fields
//   sequence = the call's                     fence, sequence again: if changed, drop the copy
//   launch, when it is made; peer             (the copy may or may not contain these)
//
// One writer at a time: NCCL serializes the calls and launches of a communicator, across threads.
// So a launch is stored before its entry is used again, and no read-modify-write is needed. A
// program that breaks NCCL's rule gets wrong entries, nothing worse: the reader checks every field.
//
// Thread: Write, SetLaunch, SetPeer: the calling and the launching thread; Read: any. Cost: six
// stores. Explored by tests/model/last_call_entry_test.cc.
#ifndef METRICS_LAST_CALL_ENTRY_H_
#define METRICS_LAST_CALL_ENTRY_H_

#include <cstdint>

#include "metrics/atomic_cell.h"

namespace nccl_pulse {

struct LastCallFields {
  uint32_t op;           // index into the name table (name_table.h), below 256
  uint32_t datatype;     // likewise
  uint32_t kind_number;  // among calls of its operation and size class, from 0
  uint32_t flags;        // of LastCallBits
  uint64_t bytes;
  void* stream;
  int32_t root_or_peer = -1;  // -1: not known
};

// Packs and unpacks the words of an entry.
struct LastCallBits {
  static constexpr uint32_t kCollective = 1;    // else Send or Recv
  static constexpr uint32_t kSameGroup = 2;     // in the same group as the previous call
  static constexpr uint32_t kCaptured = 4;      // into a CUDA graph
  static constexpr uint32_t kKindNumbered = 8;  // kind_number is known

  static constexpr uint64_t kMostBytes = (uint64_t{1} << 48) - 1;

  static constexpr int kFlagsShift = 16;  // of word `what`
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

  // Packs word `bytes`. The stream's handle is hashed, so that its address is not exposed.
  static uint64_t Bytes(uint64_t bytes, void* stream) {
    return BytesWithin(bytes < kMostBytes ? bytes : kMostBytes, stream);
  }
  // `bytes`: at most kMostBytes.
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
  // Words as Read copies them, unchecked: a reader trusts nothing.
  struct Copy {
    uint64_t what, bytes, launch;
  };

  // Writes the entry. LastCallBits packs the words `what` and `bytes`. `numbers`: the new sequence.
  void Write(uint64_t numbers, uint64_t what, uint64_t bytes) {
    sequence_.store(kWriting, std::memory_order_relaxed);
    // Release: a reader that sees one of the new fields sees kWriting, or what came after it.
    Atomics::Fence(std::memory_order_release);
    what_.store(what);
    bytes_.store(bytes);
    launch_.store(0);
    sequence_.store(numbers, std::memory_order_release);  // publishes the fields
  }
  // Sets the launch of the call in this entry. Relaxed: to a reader it is one more field of that
  // call.
  void SetLaunch(uint64_t launch) { launch_.store(launch); }
  // Sets the peer of a Send or Recv that has none yet. `peer`: LastCallBits::RootOrPeer.
  void SetPeer(uint64_t peer) { what_.store(what_.load() | peer); }
  uint64_t what() const { return what_.load(); }

  // For the thread that zeroes the chunk.
  void Reset() {
    sequence_.store(0, std::memory_order_relaxed);  // the runtime's lock orders it
    what_.store(0);
    bytes_.store(0);
    launch_.store(0);
  }

  // Returns the sequence of the copied call; 0 if there is no whole call.
  uint64_t Read(Copy* copy) const {
    const uint64_t sequence = sequence_.load(std::memory_order_acquire);  // sees the fields
    if (sequence == 0 || sequence == kWriting) return 0;
    *copy = {what_.load(), bytes_.load(), launch_.load()};
    Atomics::Fence(std::memory_order_acquire);  // orders the copy before the second read
    return sequence_.load(std::memory_order_relaxed) == sequence ? sequence : 0;
  }

 private:
  static constexpr uint64_t kWriting = UINT64_MAX;

  typename Atomics::template Atomic<uint64_t> sequence_;
  Relaxed<uint64_t, Atomics> what_;
  Relaxed<uint64_t, Atomics> bytes_;
  Relaxed<uint64_t, Atomics> launch_;
};

// BasicLastCallChunks holds the numbers of the chunks (2 KiB each) that a communicator's ring
// consists of. A finalized communicator may lose its chunks to a live one during a read. A reader
// that copied entries therefore checks again that the chunks have the same owner.
//
// Thread: Set, TakeAway: one at a time (the runtime's lock); other functions any.
template <typename Atomics, uint32_t kChunks>
class BasicLastCallChunks {
 public:
  // Sets the ring's chunk number `i`. Call before publishing the record's state.
  void Set(uint32_t i, uint16_t chunk) { chunks_[i].store(chunk); }
  uint16_t chunk(uint32_t i) const { return chunks_[i].load(); }
  // Copies the chunk numbers and returns how many there are; the first 0 ends them.
  uint32_t Read(uint16_t (&chunks)[kChunks]) const {
    uint32_t count = 0;
    while (count < kChunks && (chunks[count] = chunks_[count].load()) != 0) ++count;
    return count;
  }
  // Like Read, and empties the ring: its chunks may then be zeroed and get another owner.
  uint32_t TakeAway(uint16_t (&chunks)[kChunks]) {
    const uint32_t count = Read(chunks);
    for (Relaxed<uint16_t, Atomics>& chunk : chunks_) chunk.store(0);
    // Release: a reader that sees a zero, or a call of the next owner, finds no chunk here.
    Atomics::Fence(std::memory_order_release);
    return count;
  }
  // True if entries copied since Read belong to this owner. `first`: Read's first chunk.
  bool HasStill(uint16_t first) const {
    Atomics::Fence(std::memory_order_acquire);  // orders the copies before the second read
    return chunks_[0].load() == first;
  }

 private:
  Relaxed<uint16_t, Atomics> chunks_[kChunks];
};

using LastCallEntry = BasicLastCallEntry<StdAtomics>;
static_assert(sizeof(LastCallEntry) == 32);

}  // namespace nccl_pulse

#endif  // METRICS_LAST_CALL_ENTRY_H_
