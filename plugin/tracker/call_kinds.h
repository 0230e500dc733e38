// CallKinds caches lookups and computed values per kind of call, in one cache line each. A job
// makes the same few kinds of calls over and over.
//
// The key is the call's count and user tag, and the addresses of its strings, which are literals in
// libnccl (name_cache.h). Kinds that hash to the same entry replace each other.
//
// Thread: the calling thread; NCCL serializes the calls of a communicator. The fields are atomics
// nevertheless, so an NCCL that breaks this costs only accuracy. Cost: a multiplication, one cache
// line.
#ifndef PLUGIN_TRACKER_CALL_KINDS_H_
#define PLUGIN_TRACKER_CALL_KINDS_H_

#include <cstdint>

#include "metrics/atomic_cell.h"
#include "metrics/last_call_entry.h"
#include "metrics/segment_layout.h"
#include "plugin/tracker/events.h"
#include "plugin/tracker/operation_slot.h"

namespace nccl_pulse {

struct alignas(64) CallKind {
  // The key.
  Relaxed<const char*> func, datatype;
  Relaxed<uint64_t> count, user_tag;
  // Cached values.
  Relaxed<uint64_t> bytes;
  // Counters of calls and bytes, in the record's lane for launches; null: none.
  Relaxed<CounterPair*> cells;
  Relaxed<uint64_t> sampling_seed;  // the kind's part of the sampling hash (KindSeed, sampler.h)
  Relaxed<uint32_t> meta;           // OperationMeta without the call number, its upper half
  // The kind's part of LastCallBits::What; from bit kIndexShift on, the index under which
  // LaunchFollower numbers its calls (IndexOfNumber).
  Relaxed<uint32_t> bits;

  static constexpr int kIndexShift = 24;

  void SetWhat(uint64_t what, uint32_t number_place) {
    bits.store(static_cast<uint32_t>(what) | number_place << kIndexShift);
  }
  static constexpr uint64_t What(uint64_t bits) { return bits & ((1u << kIndexShift) - 1); }
  // Returns the index of the kind's call number.
  static constexpr uint32_t NumberIndex(uint64_t bits) {
    return static_cast<uint32_t>(bits) >> kIndexShift;
  }
  // Returns the key of the series that counts calls of this kind.
  uint64_t KeyOf(bool captured) const {
    const OperationMeta call = OperationMeta::Unpack(meta.load());
    return SeriesKey::WithTag(
        SeriesKey::Calls(call.op, call.size_class, LastCallBits::Datatype(bits.load()), captured),
        call.user_tag);
  }

  bool Is(const CallEvent& call) const {
    return func.load() == call.func && datatype.load() == call.datatype &&
           count.load() == call.count && user_tag.load() == call.user_tag;
  }
  // Makes the kind match no call: no string has this address.
  void Forget() {
    func.store(reinterpret_cast<const char*>(uintptr_t{1}));
  }  // NOLINT(performance-no-int-to-ptr)
};
static_assert(sizeof(CallKind) == 64);

class CallKinds {
 public:
  void Reset() {
    for (CallKind& kind : kinds_) kind.Forget();
  }
  // Returns the entry for the call's kind. It may hold another kind: check with CallKind::Is.
  CallKind& SlotOf(const CallEvent& call) {
    // 32-bit arithmetic makes the code shorter.
    const auto bits = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(call.func) + call.count);
    return kinds_[bits * 0x9e3779b1U >> (32 - kBits)];
  }

 private:
  static constexpr int kBits = 5;

  CallKind kinds_[1 << kBits];
};

}  // namespace nccl_pulse

#endif  // PLUGIN_TRACKER_CALL_KINDS_H_
