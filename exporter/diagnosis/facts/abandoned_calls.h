// AbandonedCalls finds calls without effect. A call that failed and was repeated, or was only
// estimated (ncclGroupSimulateEnd), has an event but no launch, so the rank's count of calls is one
// too high from then on.
//
// Thread: any, no state.
#ifndef EXPORTER_DIAGNOSIS_FACTS_ABANDONED_CALLS_H_
#define EXPORTER_DIAGNOSIS_FACTS_ABANDONED_CALLS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "exporter/diagnosis/facts/call_counts.h"
#include "exporter/diagnosis/facts/rank_view.h"

namespace nccl_pulse {

inline constexpr std::size_t kMostAbandoned = 16;  // limit of operations per communicator

// Returns a rank's calls that may be abandoned, by its own counts: either they are, or NCCL does
// not report launches of this operation. Texts from other processes are not checked.
std::vector<AbandonedCallsSnapshot> AbandonedCallsOf(const CommunicatorSnapshot& communicator);

// The abandoned calls of the ranks of one communicator.
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

 private:
  std::map<std::string, std::map<const RankView*, uint64_t>> by_op_;
};

}  // namespace nccl_pulse

#endif  // EXPORTER_DIAGNOSIS_FACTS_ABANDONED_CALLS_H_
