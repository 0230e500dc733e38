// Agreed calls are timed calls that all ranks of a communicator select without exchanging messages.
// Their durations can be compared even between nodes that are scraped seconds apart.
//
// For each of the last 32 seconds of the wall clock, a rank keeps the timed call whose CallHash has
// the most trailing zero bits. The sampler (plugin/tracker/sampler.h) times a call if enough of
// these bits are zero, so a rank that times fewer calls than another still times this one. A rank
// that missed the call keeps a different one.
//
// A rank also keeps its last timed calls in a ring. A busy communicator (hundreds of calls per
// second) overwrites its ring in the time between the scrapes of two nodes, and all calls in the
// ring may belong to one training step.
//
// Thread: pure functions.
#ifndef METRICS_AGREED_CALL_H_
#define METRICS_AGREED_CALL_H_

#include <cstdint>

#include "metrics/kinds.h"

namespace nccl_pulse {

// A moment is a second of the wall clock.
inline constexpr int64_t kMomentNs = 1'000'000'000;
inline constexpr int kMoments = 32;
// The first calls of each operation and size class include setup. They are never timed by CUDA
// events, and never agreed.
inline constexpr uint64_t kSetUpCalls = 2;

// splitmix64's finalizer: each output bit depends on every input bit.
constexpr uint64_t MixBits(uint64_t x) {
  x ^= x >> 30;
  x *= 0xbf58476d1ce4e5b9ULL;
  x ^= x >> 27;
  x *= 0x94d049bb133111ebULL;
  return x ^ x >> 31;
}

// Returns the seed from which the hashes of the communicator's calls are computed.
constexpr uint64_t CallSeed(uint64_t comm_id) { return MixBits(comm_id); }

// Returns the hash of a call. Its kind is its operation and size class. `call_number`: see
// TimedCallFields (timed_call.h). Kind and number advance by different odd strides. Their multiples
// meet only far beyond any number of calls, so no kind's sequence is another's shifted.
constexpr uint64_t CallHash(uint64_t kind_seed, uint64_t call_number) {
  return MixBits(kind_seed + call_number * 0x9e3779b97f4a7c15ULL);
}
// Returns the seed for calls of one kind. `seed`: CallSeed. `row`: the operation's OperationRowOf
// (name_table.h), the same in every process.
constexpr uint64_t KindSeed(uint64_t seed, uint32_t row, uint32_t size_class) {
  return seed + (uint64_t{row} << 8 | size_class) * 0xd1342543de82ef95ULL;
}
constexpr uint64_t CallHash(uint64_t seed, uint32_t row, uint32_t size_class,
                            uint64_t call_number) {
  return CallHash(KindSeed(seed, row, size_class), call_number);
}

// True if the call with `hash` is kept rather than the one with `other`: at the lowest bit in which
// they differ, `hash` is zero.
constexpr bool IsRarer(uint64_t hash, uint64_t other) {
  const uint64_t difference = hash ^ other;
  return (difference & -difference & other) != 0;
}

// True for durations of eager calls that include waiting for other ranks. Only calls with these, of
// operations that wait for all ranks (WaitsForAllRanks), can be agreed.
constexpr bool IsAgreedKind(LatencyKind kind) {
  return kind == LatencyKind::kDurationStream || kind == LatencyKind::kDurationKernel;
}

}  // namespace nccl_pulse

#endif  // METRICS_AGREED_CALL_H_
