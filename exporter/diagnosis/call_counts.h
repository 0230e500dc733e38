// How often a rank has called what, and how two ranks' counts compare.
//
// Collectives are called by all ranks in one order, so of two ranks one has called a beginning of
// what the other has called: one's counts are nowhere larger than the other's. Counts that are not
// so prove that the ranks called different things; counts that are so say what a rank still owes.
//
// Thread: any, no state.
#ifndef EXPORTER_DIAGNOSIS_CALL_COUNTS_H_
#define EXPORTER_DIAGNOSIS_CALL_COUNTS_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "metrics/snapshot.h"

namespace nccl_pulse {

// By operation and size class; the class is -1 where sizes do not matter.
using Calls = std::map<std::pair<std::string, int>, uint64_t>;

Calls CollectiveCalls(const CommunicatorSnapshot& communicator);
Calls WithoutSizes(const Calls& calls);
uint64_t Total(const Calls& calls);
// What `more` has and `less` has not.
Calls Excess(const Calls& more, const Calls& less);
// What both have.
Calls Common(const Calls& a, const Calls& b);
// "" when there are several, or none.
std::string OnlyOperation(const Calls& calls);

}  // namespace nccl_pulse

#endif  // EXPORTER_DIAGNOSIS_CALL_COUNTS_H_
