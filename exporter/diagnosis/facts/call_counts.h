// Calls counts a rank's calls by operation, for comparing ranks.
//
// All ranks call collectives in the same order. So if a rank is behind another, none of its counts
// is larger, and the differences are the calls that it has not made yet. If each of two ranks has
// some larger count, they have called different operations.
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

// Number of calls by operation and size class (a range of message sizes; -1: all sizes together).
using Calls = std::map<std::pair<std::string, int>, uint64_t>;

Calls CollectiveCalls(const CommunicatorSnapshot& communicator);
Calls WithoutSizes(const Calls& calls);
uint64_t Total(const Calls& calls);
// Returns the calls by which `more` exceeds `less`.
Calls Excess(const Calls& more, const Calls& less);
// Returns the calls that both have.
Calls Common(const Calls& a, const Calls& b);
// Returns the only operation in `calls`; "" if there are several, or none.
std::string OnlyOperation(const Calls& calls);

}  // namespace nccl_pulse

#endif  // EXPORTER_DIAGNOSIS_FACTS_CALL_COUNTS_H_
