// Finds the first collective that the ranks of a communicator did not call alike, by the order of
// their last calls. Counts say nothing of it once all hosts have gone on behind it.
//
// A call is known by its number among the collectives of its communicator, so it does not matter
// when each rank was looked at. Compared is what NCCL demands to be equal and reports: operation
// and bytes, then the root. A call that all have completed holds up nobody, however they called it:
// compared is only what some rank is known to have in flight, and the data type only of what
// reduces: the others move bytes. Not compared: the reduction, which is not kept, and Send and
// Recv, which may differ. Collectives of one group may be called in any order.
//
// Thread: any, no state. Cost: of the order of the calls that are compared.
#ifndef EXPORTER_DIAGNOSIS_FACTS_CALL_ORDER_H_
#define EXPORTER_DIAGNOSIS_FACTS_CALL_ORDER_H_

#include <optional>

#include "exporter/diagnosis/facts/call_mismatch.h"
#include "exporter/diagnosis/facts/communicator_facts.h"

namespace nccl_pulse {

// Null: all called alike as far as that is known. Ranks whose calls are not known that far back, or
// that have not come so far, are on no side. Calls that made nothing have no number.
std::optional<Mismatch> CompareCallOrder(const CommunicatorFacts& facts);

}  // namespace nccl_pulse

#endif  // EXPORTER_DIAGNOSIS_FACTS_CALL_ORDER_H_
