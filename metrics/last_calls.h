// LastCalls writes a communicator's last calls into its record's ring (RecordWriter::Prepare).
//
// A ring consists of chunks of the segment with kLastCallsPerChunk entries each. The entry of a
// call is written when the call is made. The time and number of its launch are added when the
// launch is counted. A launch carries all calls of the last group. Calls stay without a launch if
// NCCL does not report it, or if they are captured into CUDA graphs.
//
// A program may break the rule of one writer at a time (last_call_entry.h). Calls before API v5
// also come from NCCL's host callback thread, and ncclCommAbort ends a communicator during its
// callbacks. So the address of every entry, also of the call that waits for its launch, is derived
// from a number and a chunk of a ring. Such a chunk is never used for anything else
// (Segment::TakeRingChunk). The worst outcome is a wrong entry, in this or another ring.
//
// Fields are relaxed: NCCL orders the calls and launches of a communicator, and no other thread
// reads them.
//
// Thread: as LastCallEntry; Begin and Close under the runtime's lock. Cost of Note and NoteLaunch
// together: 47 instructions, ten stores (bench/count_instructions.py). One branch each without a
// ring.
#ifndef METRICS_LAST_CALLS_H_
#define METRICS_LAST_CALLS_H_

#include <algorithm>
#include <cstdint>

#include "metrics/name_table.h"
#include "metrics/segment.h"
#include "metrics/segment_layout.h"

namespace nccl_pulse {

// Positions at which NotePeer continues its search for calls of a group without a peer.
struct PeerCursor {
  Relaxed<uint64_t> group;
  Relaxed<uint32_t> next[2];  // for Send and for Recv: a call number minus one
};

class LastCalls {
 public:
  // Starts to write into the ring of `record`, which RecordWriter::Prepare has set; if it has none,
  // nothing is written.
  void Begin(Segment& segment, CommunicatorRecord& record) {
    Close();
    group_.store(0);
    numbers_.store(0);
    uint32_t chunks = 0;
    while (chunks < kLastCallChunks && record.last_call_chunks.chunk(chunks) != kNoChunk) ++chunks;
    if (chunks == 0) return;
    mask_.store(static_cast<uint16_t>(chunks * kLastCallsPerChunk - 1));  // a power of two
    segment_.store(&segment);
    record_.store(static_cast<uint16_t>(&record - &segment.record(0)));
    chunk_.store(ChunkOf(0));
  }
  // Stops writing. A running callback finds all other fields unchanged.
  void Close() {
    chunk_.store(nullptr);
    waiting_.store(kNone);
  }

  // Adds a call to the ring. `what` and `bytes`: words packed by LastCallBits, without kSameGroup,
  // which is set here. `group`: identifies the call's group; 0: not known.
  void Note(uint64_t what, uint64_t bytes, uint64_t group) {
    if (!IsOfGroup(group)) return NoteFirst(what, bytes, group);
    what |= LastCallBits::kSameGroup << LastCallBits::kFlagsShift;
    LastCallChunk* const chunk = chunk_.load();
    if (chunk == nullptr) return;
    PrepareWrap();
    Append(*chunk, what, bytes, true);
    TurnChunk();
  }
  // Like Note, for a call that is not of the last call's group.
  void NoteFirst(uint64_t what, uint64_t bytes, uint64_t group) {
    PrepareWrap();
    NoteUsual(what, bytes, group);
    TurnChunk();
  }
  // Like NoteFirst, for a call that does not end a chunk.
  [[gnu::always_inline]] void NoteUsual(uint64_t what, uint64_t bytes, uint64_t group) {
    LastCallChunk* const chunk = chunk_.load();
    if (__builtin_expect(chunk == nullptr, 0)) return;
    group_.store(group);
    Append(*chunk, what, bytes, false);
  }
  bool ends_chunk() const { return (numbers_.load() + 1) % kLastCallsPerChunk == 0; }
  bool IsOfGroup(uint64_t group) const { return group_.load() == group && group != 0; }
  void Note(const LastCallFields& call, uint64_t group) {
    Note(LastCallBits::What(call), LastCallBits::Bytes(call.bytes, call.stream), group);
  }
  // Leaves the last call, and earlier calls of its group, without a launch, for example because
  // they were captured.
  void ForgetLaunch() { waiting_.store(kNone); }
  // Sets `peer` on the last group's first call of operation `op` (Send or Recv) that has none. NCCL
  // may report peers in another order than the calls. No effect if `group` is not the last group.
  [[gnu::noinline]] void NotePeer(uint32_t op, int32_t peer, uint64_t group, PeerCursor& cursor) {
    if (!IsOfGroup(group)) return;
    const auto calls = static_cast<uint32_t>(numbers_.load());
    if (cursor.group.load() != group) {
      cursor.group.store(group);
      const uint32_t first = FirstOfGroup(calls);
      for (Relaxed<uint32_t>& next : cursor.next) next.store(first);
    }
    Relaxed<uint32_t>& next = cursor.next[op == kReceiveName ? 1 : 0];
    for (uint32_t i = next.load(); i < calls; ++i) {
      LastCallEntry* const entry = EntryOf(i);
      if (entry == nullptr) return;
      if (LastCallBits::Op(entry->what()) != op) continue;
      next.store(i + 1);
      return entry->SetPeer(LastCallBits::RootOrPeer(peer));
    }
    next.store(calls);
  }
  // Adds a launch to the calls of the last group, which it carries. `number`: the launch's number
  // on its communicator.
  void NoteLaunch(uint64_t monotonic_ns, uint64_t number) {
    const uintptr_t waiting = waiting_.load();
    const uint64_t launch = LastCallBits::Launch(monotonic_ns, number);
    if (__builtin_expect(waiting <= kGroup, 0)) {
      if (waiting == kGroup) NoteGroupLaunch(launch);
      return;
    }
    waiting_.store(kNone);
    reinterpret_cast<LastCallEntry*>(waiting)->SetLaunch(launch);
  }

 private:
  // Values of waiting_; any other value is the address of an entry.
  static constexpr uintptr_t kNone = 0;
  static constexpr uintptr_t kGroup = 1;

  [[gnu::always_inline]] void Append(LastCallChunk& chunk, uint64_t what, uint64_t bytes,
                                     bool joins) {
    const uint64_t numbers = numbers_.load();
    const auto before = static_cast<uint32_t>(numbers);
    LastCallEntry& entry = chunk.entries[before % kLastCallsPerChunk];
    auto waiting = reinterpret_cast<uintptr_t>(&entry);
    if (joins) waiting = JoinGroup(before, waiting);
    // Adds the flag itself to the count: no branch.
    static_assert(LastCallBits::kCollective == 1);
    constexpr uint64_t kFlag = uint64_t{1} << LastCallBits::kFlagsShift;
    const uint64_t next = numbers + 1 + ((what & kFlag) << (32 - LastCallBits::kFlagsShift));
    numbers_.store(next);
    entry.Write(next, what, bytes);
    // Calls of an earlier group stay without a launch.
    waiting_.store(waiting);
  }
  // Called before a call that ends a chunk. If that is call number 2^32, subtracts its carry into
  // the number of collectives, so that the two numbers wrap independently.
  void PrepareWrap() {
    if (static_cast<uint32_t>(numbers_.load()) != UINT32_MAX) return;
    numbers_.store(numbers_.load() - (uint64_t{1} << 32));
  }
  // Called after a call. Moves to the next chunk if the current one is full.
  void TurnChunk() {
    const auto calls = static_cast<uint32_t>(numbers_.load());
    if (calls % kLastCallsPerChunk == 0 && chunk_.load() != nullptr) chunk_.store(ChunkOf(calls));
  }
  // Returns the new value of waiting_: this entry alone, or all calls since first_.
  uintptr_t JoinGroup(uint32_t before, uintptr_t entry) {
    const uintptr_t waiting = waiting_.load();
    if (waiting == kNone) return entry;
    if (waiting != kGroup) first_.store(before);  // the number of the call before this one
    return kGroup;
  }
  // Returns the chunk of call number `index` + 1; null if the record no longer has a ring.
  [[gnu::cold, gnu::noinline]] LastCallChunk* ChunkOf(uint32_t index) const {
    Segment& segment = *segment_.load();
    const uint32_t place = index & mask_.load();
    const uint16_t chunk =
        segment.record(record_.load()).last_call_chunks.chunk(place / kLastCallsPerChunk);
    return chunk == kNoChunk ? nullptr : &segment.last_calls(chunk);
  }
  LastCallEntry* EntryOf(uint32_t index) const {
    LastCallChunk* const chunk = ChunkOf(index);
    return chunk == nullptr ? nullptr : &chunk->entries[index % kLastCallsPerChunk];
  }
  // Returns the number, minus one, of the oldest call of the last group still in the ring.
  uint32_t FirstOfGroup(uint32_t calls) const {
    uint32_t first = calls;
    while (first != 0 && calls - first <= mask_.load()) {
      const LastCallEntry* const entry = EntryOf(--first);
      if (entry == nullptr) return calls;
      if ((LastCallBits::Flags(entry->what()) & LastCallBits::kSameGroup) == 0) break;
    }
    return first;
  }
  [[gnu::cold, gnu::noinline]] void NoteGroupLaunch(uint64_t launch) {
    waiting_.store(kNone);
    const auto calls = static_cast<uint32_t>(numbers_.load());
    const uint32_t carried = std::min(calls - first_.load() + 1, uint32_t{mask_.load()} + 1);
    for (uint32_t i = calls - carried; i != calls; ++i) {
      if (LastCallEntry* const entry = EntryOf(i)) entry->SetLaunch(launch);
    }
  }

  Relaxed<LastCallChunk*>
      chunk_;                   // for the next call; null: no ring, or the communicator is closed
  Relaxed<uint64_t> group_;     // of the newest call
  Relaxed<uint64_t> numbers_;   // sequence of the newest call's LastCallEntry
  Relaxed<uintptr_t> waiting_;  // address of the call that has no launch yet, kGroup, or kNone
  Relaxed<uint32_t> first_;     // with kGroup: number of the group's first call
  Relaxed<uint16_t> mask_;      // number of entries in the ring, minus one
  Relaxed<uint16_t> record_;    // index of the record that owns the ring
  Relaxed<Segment*> segment_;
};
static_assert(sizeof(LastCalls) == 48);

}  // namespace nccl_pulse

#endif  // METRICS_LAST_CALLS_H_
