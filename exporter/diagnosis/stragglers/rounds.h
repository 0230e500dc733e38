// How many calls of a communicator belong to one round of the job (a step of a training, a token of
// a decoding). The calls of a round are late alike: with sequences of unequal length the rank with
// the longest one comes last into the calls of all layers. So what happened in one round has
// happened once, whatever the number of its calls.
//
// A round is as long as it takes until the rarest collective of the process is called again. What
// was called less than kMinRounds times, or as seldom as once in kMostCallsOfRound calls, is no
// part of each round: it was to start, or to evaluate. Nor is what was called on communicators that
// have ended, or have rested for kRestNs while others were used.
//
// Thread: any, no state. Cost: proportional to the kinds of calls of the process.
#ifndef EXPORTER_DIAGNOSIS_STRAGGLERS_ROUNDS_H_
#define EXPORTER_DIAGNOSIS_STRAGGLERS_ROUNDS_H_

#include <cstdint>
#include <unordered_map>

#include "metrics/snapshot.h"

namespace nccl_pulse {

inline constexpr uint64_t kMinRounds = 4;
inline constexpr uint64_t kMostCallsOfRound = 1024;
inline constexpr int64_t kRestNs = 30'000'000'000;

// Returns the rounds of a process since its start; 0: not known.
uint64_t RoundsOf(const ProcessSnapshot& process);

// The same, counted once for each process: its communicators ask one after the other.
class RoundsOfProcesses {
 public:
  uint64_t Of(const ProcessSnapshot& process);

 private:
  std::unordered_map<const ProcessSnapshot*, uint64_t> rounds_;
};

// Calls that are numbered as these: of this operation and size class; by kernel timing of any size;
// or launches of several calls ("Grouped").
uint64_t CallsOfKind(const CommunicatorSnapshot& communicator, const TimedCallSnapshot& kind);

// Whether a share of `occasions` is more than chance would have it: that one of `candidates`, each
// of which has `chance` to be it each time, is it so often is less likely than one in 100,000. By
// Chernoff's bound, so rather less.
bool IsBeyondChance(double share, double chance, double occasions, double candidates);

}  // namespace nccl_pulse

#endif  // EXPORTER_DIAGNOSIS_STRAGGLERS_ROUNDS_H_
