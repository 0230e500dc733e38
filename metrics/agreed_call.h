// Agreed calls are timed calls that all ranks of a communicator select without exchanging messages.
// Their durations can be compared even between nodes that are scraped seconds apart.
//
// For each of the last 32 seconds of the wall clock, a rank keeps the call whose hash has the most
// trailing zero bits. The sampler (plugin/tracker/sampler.h) also times calls by those bits, so a
// rank that times fewer calls than another still times this one. A rank that missed the call keeps
// a different one.
//
// Without agreed calls, a busy communicator (hundreds of calls per second) overwrites its ring of
// last timed calls between the responses of two endpoints. All calls in the ring may also belong to
// one step of the job.
//
// Thread: pure functions.
#ifndef METRICS_AGREED_CALL_H_
#define METRICS_AGREED_CALL_H_

#include <cstdint>

#include "metrics/kinds.h"

namespace nccl_pulse {

inline constexpr int64_t kMomentNs = 1'000'000'000;
inline constexpr int kMoments = 32;
// The first calls of each kind include setup: they are not timed on the stream, and never agreed.
inline constexpr uint64_t kSetUpCalls = 2;

// splitmix64's finalizer: each output bit depends on every input bit.
constexpr uint64_t MixBits(uint64_t x) {
  x ^= x >> 30;
  x *= 0xbf58476d1ce4e5b9ULL;
  x ^= x >> 27;
  x *= 0x94d049bb133111ebULL;
  return x ^ x >> 31;
}

// Returns the communicator's share of its calls' hashes.
constexpr uint64_t CallSeed(uint64_t comm_id) { return MixBits(comm_id); }

// Returns the hash of call number `call_number` of a kind. Kind and number advance by different odd
// strides. Their multiples meet only far beyond any number of calls, so no kind's sequence is
// another's shifted. `row`: OperationRowOf the operation, the same in every process.
constexpr uint64_t CallHash(uint64_t kind_seed, uint64_t call_number) {
  return MixBits(kind_seed + call_number * 0x9e3779b97f4a7c15ULL);
}
// Returns the kind's share of the hash.
constexpr uint64_t KindSeed(uint64_t seed, uint32_t row, uint32_t size_class) {
  return seed + (uint64_t{row} << 8 | size_class) * 0xd1342543de82ef95ULL;
}
constexpr uint64_t CallHash(uint64_t seed, uint32_t row, uint32_t size_class,
                            uint64_t call_number) {
  return CallHash(KindSeed(seed, row, size_class), call_number);
}

// True if `hash` is kept rather than `other`: it has the zero at the lowest bit in which they
// differ.
constexpr bool IsRarer(uint64_t hash, uint64_t other) {
  const uint64_t difference = hash ^ other;
  return (difference & -difference & other) != 0;
}

// True for durations that include waiting for other ranks.
constexpr bool IsAgreedKind(LatencyKind kind) {
  return kind == LatencyKind::kDurationStream || kind == LatencyKind::kDurationKernel;
}

}  // namespace nccl_pulse

#endif  // METRICS_AGREED_CALL_H_
