// Agreed calls: all ranks of a communicator pick the same call, without a message, so that its
// durations can be compared between nodes that are scraped seconds apart.
//
// For each of the last 32 seconds of the wall clock, a rank keeps the call whose hash has the most
// zeros at its low end. The sampler times calls whose hash has zeros there
// (plugin/tracker/sampler.h), so a rank that times fewer calls than another still times this one. A
// rank that missed it keeps another call. Without them, a communicator with hundreds of calls a
// second turns its ring of last timed calls over in less time than passes between the responses of
// two endpoints, and all of them may be calls of one step of the job.
//
// Thread: pure functions.
#ifndef METRICS_AGREED_CALL_H_
#define METRICS_AGREED_CALL_H_

#include <cstdint>

#include "metrics/kinds.h"

namespace nccl_pulse {

inline constexpr int64_t kMomentNs = 1'000'000'000;
inline constexpr int kMoments = 32;
// The first calls of each kind carry set-up: they are not timed on the stream, and never agreed.
inline constexpr uint64_t kSetUpCalls = 2;

// splitmix64's finalizer: each output bit depends on every input bit.
constexpr uint64_t MixBits(uint64_t x) {
  x ^= x >> 30;
  x *= 0xbf58476d1ce4e5b9ULL;
  x ^= x >> 27;
  x *= 0x94d049bb133111ebULL;
  return x ^ x >> 31;
}

// A communicator's share in the hash of its calls.
constexpr uint64_t CallSeed(uint64_t comm_id) { return MixBits(comm_id); }

// Of call number j of its kind. The kind and the number advance by strides of their own, odd ones
// whose multiples meet only far beyond any number of calls, so that one kind is no other kind
// shifted. `row`: OperationRowOf the operation, the same in every process.
constexpr uint64_t CallHash(uint64_t kind_seed, uint64_t call_number) {
  return MixBits(kind_seed + call_number * 0x9e3779b97f4a7c15ULL);
}
// A kind's share.
constexpr uint64_t KindSeed(uint64_t seed, uint32_t row, uint32_t size_class) {
  return seed + (uint64_t{row} << 8 | size_class) * 0xd1342543de82ef95ULL;
}
constexpr uint64_t CallHash(uint64_t seed, uint32_t row, uint32_t size_class,
                            uint64_t call_number) {
  return CallHash(KindSeed(seed, row, size_class), call_number);
}

// Which of two is kept: at the lowest bit in which they differ, it has the zero.
constexpr bool IsRarer(uint64_t hash, uint64_t other) {
  const uint64_t difference = hash ^ other;
  return (difference & -difference & other) != 0;
}

// Durations that contain the waiting for other ranks.
constexpr bool IsAgreedKind(LatencyKind kind) {
  return kind == LatencyKind::kDurationStream || kind == LatencyKind::kDurationKernel;
}

}  // namespace nccl_pulse

#endif  // METRICS_AGREED_CALL_H_
