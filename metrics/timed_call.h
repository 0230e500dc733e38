// TimedCall is one entry of a communicator's ring of last timed calls (calls with a duration). Any
// thread that holds a lane (lane_claim.h) may write an entry, and any process may read it.
//
//   sequence    0 never written; kWriting during a write; else 1 + the call's number among the
//               communicator's timed calls
//
//   writer                                    reader
//   swap sequence for kWriting, fence         sequence: if 0 or kWriting, no entry
//   fields                                    copy of the fields
//   sequence = 1 + number                     fence, sequence again: if changed, drop the copy
//
// Call number n is written to entry n modulo the ring's size. So two writers meet in one entry only
// if one of them was preempted for a whole turn of the ring. The second writer then gives way: a
// missing call is better than a mixture of two.
//
// Thread: Write: any, never waits; Read: any. Cost of Write: one compare-and-swap and five stores.
// Explored by tests/model/timed_call_test.cc.
#ifndef METRICS_TIMED_CALL_H_
#define METRICS_TIMED_CALL_H_

#include <cstdint>

#include "metrics/atomic_cell.h"
#include "metrics/kinds.h"

namespace nccl_pulse {

struct TimedCallFields {
  uint32_t op;  // index into the name table (name_table.h), below 256
  LatencyKind kind;
  uint32_t size_class;
  // Identifies the call on all ranks. kDurationStream: number among calls of its operation and size
  // class, from 0. kDurationGraph: number of the replay. Otherwise: NCCL's seqNumber.
  uint32_t call_number;
  uint64_t bytes, duration_ns, end_monotonic_ns;
  uint32_t graph = 0;  // kDurationGraph: the graph's number, modulo 256
};

// A call's fields in 64 bits:
//
//   bit  63         32 31    24 23        16 15          8 7    0
//        | call number | graph | size class | LatencyKind |  op  |
//              32          8         8             8          8
struct TimedCallKey {
  static constexpr uint64_t Pack(const TimedCallFields& call) {
    return uint64_t{call.op & 0xff} | uint64_t{static_cast<uint8_t>(call.kind)} << 8 |
           uint64_t{call.size_class & 0xff} << 16 | uint64_t{call.graph & 0xff} << 24 |
           uint64_t{call.call_number} << 32;
  }
  static constexpr uint32_t Op(uint64_t key) { return key & 0xff; }
  static constexpr uint32_t Kind(uint64_t key) { return key >> 8 & 0xff; }  // may be no LatencyKind
  static constexpr uint32_t SizeClass(uint64_t key) { return key >> 16 & 0xff; }
  static constexpr uint32_t Graph(uint64_t key) { return key >> 24 & 0xff; }
  static constexpr uint32_t CallNumber(uint64_t key) { return static_cast<uint32_t>(key >> 32); }
};

template <typename Atomics>
class BasicTimedCall {
 public:
  // Words as Read copies them, unchecked: a reader trusts nothing.
  struct Copy {
    uint64_t key, bytes, duration_ns, end_monotonic_ns;
  };

  // Writes the communicator's timed call number `number`, from 0. False, without effect, if another
  // thread is writing this entry or it has a later call.
  bool Write(uint64_t number, const TimedCallFields& call) {
    uint64_t before = sequence_.load(std::memory_order_relaxed);  // the swap checks it
    if (before == kWriting || before > number) return false;
    // Acquire: orders this writer's fields after those of the previous writer.
    if (!sequence_.compare_exchange_strong(before, kWriting, std::memory_order_acquire,
                                           std::memory_order_relaxed)) {
      return false;
    }
    // Release: a reader that sees one of the new fields sees kWriting, or what came after it.
    Atomics::Fence(std::memory_order_release);
    key_.store(TimedCallKey::Pack(call));
    bytes_.store(call.bytes);
    duration_ns_.store(call.duration_ns);
    end_monotonic_ns_.store(call.end_monotonic_ns);
    sequence_.store(number + 1, std::memory_order_release);  // publishes the fields
    return true;
  }

  // Returns 1 + the number of the copied call; 0 if there is no whole call.
  uint64_t Read(Copy* copy) const {
    const uint64_t sequence = sequence_.load(std::memory_order_acquire);  // sees the fields
    if (sequence == 0 || sequence == kWriting) return 0;
    *copy = {key_.load(), bytes_.load(), duration_ns_.load(), end_monotonic_ns_.load()};
    Atomics::Fence(std::memory_order_acquire);  // orders the copy before the second read
    return sequence_.load(std::memory_order_relaxed) == sequence ? sequence : 0;
  }

  // Caller holds all lanes of the record; readers drop the entry by the record's generation.
  void Reset() {
    sequence_.store(0, std::memory_order_relaxed);  // the lanes' release orders it for writers
    key_.store(0);
    bytes_.store(0);
    duration_ns_.store(0);
    end_monotonic_ns_.store(0);
  }

 private:
  static constexpr uint64_t kWriting = UINT64_MAX;

  typename Atomics::template Atomic<uint64_t> sequence_;
  Relaxed<uint64_t, Atomics> key_;
  Relaxed<uint64_t, Atomics> bytes_;
  Relaxed<uint64_t, Atomics> duration_ns_;
  Relaxed<uint64_t, Atomics> end_monotonic_ns_;
};

using TimedCall = BasicTimedCall<StdAtomics>;
static_assert(sizeof(TimedCall) == 40);

}  // namespace nccl_pulse

#endif  // METRICS_TIMED_CALL_H_
