// RoundsOf counts the rounds of a job: training steps, or decoded tokens.
//
// The calls of a round are not independent: if sequences differ in length, the rank with the
// longest one arrives last at the calls of all layers. So an observation in one round counts once,
// whatever the number of its calls.
//
// A round lasts until the rarest collective of the process is called again. Not counted are
// collectives called less than kMinRounds times, or less often than once in kMostCallsOfRound
// calls, which belong to startup or evaluation. Also not counted are communicators that have ended,
// or have been unused for kRestNs while others were used.
//
// Thread: any, no state. Cost: proportional to the kinds of calls of the process.
#ifndef EXPORTER_DIAGNOSIS_STRAGGLERS_ROUNDS_H_
#define EXPORTER_DIAGNOSIS_STRAGGLERS_ROUNDS_H_

#include <cstdint>
#include <optional>
#include <unordered_map>

#include "exporter/diagnosis/facts/rank_view.h"
#include "metrics/snapshot.h"

namespace nccl_pulse {

inline constexpr uint64_t kMinRounds = 4;
inline constexpr uint64_t kMostCallsOfRound = 1024;
inline constexpr int64_t kRestNs = 30'000'000'000;

// Returns the rounds of a process since its start; 0: not known.
uint64_t RoundsOf(const ProcessSnapshot& process);

// Caches the rounds per process, because each of its communicators needs them.
class RoundsOfProcesses {
 public:
  uint64_t Of(const ProcessSnapshot& process);

 private:
  std::unordered_map<const ProcessSnapshot*, uint64_t> rounds_;
};

// Returns how many calls share the call numbers of `kind`: the calls of its operation and size
// class, or of all sizes with kernel timing. For "Grouped": the launches of several calls.
uint64_t CallsOfKind(const CommunicatorSnapshot& communicator, const TimedCallSnapshot& kind);

// True if a rank or host was last at too large a `share` of `occasions` rounds for chance. If each
// of the `candidates` were last with probability `chance`, the probability that any of them reaches
// this share would be below 1 in 100,000 (Chernoff's bound, conservative).
bool IsBeyondChance(double share, double chance, double occasions, double candidates);

// Returns the share of its time that a rank spends in calls for which `is_counted` is true, on one
// communicator. Returns nothing if too few calls were timed.
std::optional<double> ShareInCalls(const RankView& rank,
                                   bool (*is_counted)(const TimedCallSnapshot& call));

}  // namespace nccl_pulse

#endif  // EXPORTER_DIAGNOSIS_STRAGGLERS_ROUNDS_H_
