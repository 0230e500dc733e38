// Calls that made nothing: a call that failed and was made again, or was only estimated
// (ncclGroupSimulateEnd), has an event, and no launch. Whoever counts calls counts one more on that
// rank from then on.
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

inline constexpr std::size_t kMostAbandoned = 16;  // operations of a communicator

// Of one rank, as far as its own counts tell: or NCCL does not report these calls of an operation.
// What came from another process is returned as it is.
std::vector<AbandonedCallsSnapshot> AbandonedCallsOf(const CommunicatorSnapshot& communicator);

// It knows the abandoned calls of the ranks of one communicator.
class AbandonedCalls {
 public:
  AbandonedCalls() = default;
  // An operation of which another rank has had all calls reported is one that NCCL reports. A
  // collective that one rank alone has called, which is idle, made nothing: it would not have
  // ended.
  explicit AbandonedCalls(const std::vector<RankView>& ranks);

  // Returns how many that rank has, of one operation or of all.
  uint64_t Of(const RankView& rank, const std::string& op) const;
  uint64_t Of(const RankView& rank) const;
  // The rank's collectives without those. Which size they had is not known, so the sizes of these
  // operations do not matter then, on any rank.
  Calls CountWithout(const RankView& rank) const;

 private:
  std::map<std::string, std::map<const RankView*, uint64_t>> by_op_;
};

}  // namespace nccl_pulse

#endif  // EXPORTER_DIAGNOSIS_FACTS_ABANDONED_CALLS_H_
