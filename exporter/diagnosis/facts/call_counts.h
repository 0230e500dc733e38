// Counts how often a rank has called each operation, and compares two ranks' counts.
//
// All ranks call collectives in the same order. So of two ranks, the one behind has made the first
// part of the other one's calls: none of its counts is larger. Then the differences are the calls
// that it still owes. If each rank has a count that is larger than the other one's, they have
// called different things.
//
// Thread: any, no state.
#ifndef EXPORTER_DIAGNOSIS_FACTS_CALL_COUNTS_H_
#define EXPORTER_DIAGNOSIS_FACTS_CALL_COUNTS_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "metrics/snapshot.h"

namespace nccl_pulse {

// The key is the operation and size class; the class is -1 where sizes do not matter.
using Calls = std::map<std::pair<std::string, int>, uint64_t>;

Calls CollectiveCalls(const CommunicatorSnapshot& communicator);
Calls WithoutSizes(const Calls& calls);
uint64_t Total(const Calls& calls);
// Returns what `more` has and `less` has not.
Calls Excess(const Calls& more, const Calls& less);
// Returns what both have.
Calls Common(const Calls& a, const Calls& b);
// "" when there are several, or none.
std::string OnlyOperation(const Calls& calls);

}  // namespace nccl_pulse

#endif  // EXPORTER_DIAGNOSIS_FACTS_CALL_COUNTS_H_
