// Finds which ranks have launched, begun or completed less than the others.
//
// The first two only for communicators without Send and Recv: with those, the launches of two ranks
// do not correspond.
//
// Thread: any, no state.
#ifndef EXPORTER_DIAGNOSIS_LAUNCH_ORDER_H_
#define EXPORTER_DIAGNOSIS_LAUNCH_ORDER_H_

#include "exporter/diagnosis/communicator_facts.h"

namespace nccl_pulse {

// Have called what others have launched and wait in, and launched nothing for it: whether NCCL
// reports a launch depends on the operation, so theirs has not been made.
Ranks RanksInsideNccl(const CommunicatorFacts& facts, const Ranks& waiting);

// The ranks whose GPU has not come to a launch that another one's has.
Ranks RanksNotBegun(const CommunicatorFacts& facts);

// The ranks that stand in a collective that another one has completed, and that no rank completes
// before all have begun it: they do not wait for a rank, but for their GPU or for what the network
// has not brought. Of dumps alone: calls of live ranks are known as of different moments.
Ranks RanksNotCompleted(const CommunicatorFacts& facts);

}  // namespace nccl_pulse

#endif  // EXPORTER_DIAGNOSIS_LAUNCH_ORDER_H_
