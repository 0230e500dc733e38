// Calls counts a rank's calls by operation, for comparing ranks.
//
// All ranks call collectives in the same order. So if a rank is behind another, none of its counts
// is larger, and the differences are the calls that it has not made yet. If each of two ranks has
// some larger count, they have called different operations.
//
// Thread: any, no state.
#ifndef EXPORTER_DIAGNOSIS_FACTS_CALL_COUNTS_H_
#define EXPORTER_DIAGNOSIS_FACTS_CALL_COUNTS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "exporter/diagnosis/facts/rank_view.h"
#include "metrics/snapshot.h"

namespace nccl_pulse {

// Number of calls by operation and size class (a range of message sizes; -1: all sizes together).
using Calls = std::map<std::pair<std::string, int>, uint64_t>;

Calls CollectiveCalls(const CommunicatorSnapshot& communicator);
uint64_t TotalCollectives(const CommunicatorSnapshot& communicator);
Calls WithoutSizes(const Calls& calls);
uint64_t Total(const Calls& calls);
// Returns the calls by which `more` exceeds `less`.
Calls Excess(const Calls& more, const Calls& less);
// Returns the calls that both have.
Calls Common(const Calls& a, const Calls& b);
// Returns the only operation in `calls`; "" if there are several, or none.
std::string OnlyOperation(const Calls& calls);

inline constexpr std::size_t kMostAbandoned = 16;  // limit of operations per communicator

// Returns a rank's calls that may be abandoned, by its own counts: either they are, or NCCL does
// not report launches of this operation. Names of operations are untrusted, and copied unchecked.
std::vector<AbandonedCallsSnapshot> AbandonedCallsOf(const CommunicatorSnapshot& communicator);

// The calls of a communicator's ranks that have no effect. A call that failed and was repeated, or
// was only estimated (ncclGroupSimulateEnd), has an event but no launch, so the rank's count of
// calls is one too high from then on.
class AbandonedCalls {
 public:
  AbandonedCalls() = default;
  // Decides by comparing ranks. If some rank reported all its calls of an operation, NCCL reports
  // this operation. A collective called only by one rank, which is idle, was abandoned: otherwise
  // it would not have ended.
  explicit AbandonedCalls(const std::vector<RankView>& ranks);

  // Returns the rank's number of abandoned calls, of one operation or of all.
  uint64_t Of(const RankView& rank, const std::string& op) const;
  uint64_t Of(const RankView& rank) const;
  // Returns the rank's collectives without abandoned ones. Their sizes are not known, so for
  // these operations the sizes are ignored on all ranks.
  Calls CountWithout(const RankView& rank) const;
  uint64_t TotalWithout(const RankView& rank) const;

 private:
  std::map<std::string, std::map<const RankView*, uint64_t>> by_op_;
};

}  // namespace nccl_pulse

#endif  // EXPORTER_DIAGNOSIS_FACTS_CALL_COUNTS_H_
