// A communicator that some ranks are making while the others do not come.
//
// NCCL tells the profiler of a communicator on each rank alone, after all ranks have exchanged
// their addresses and what they found of the machine. Whoever has come that far waits, in
// connecting, for those that have not. (Before that NCCL tells of it on no rank:
// docs/compatibility.md#limits.)
//
// Thread: any, no state.
#ifndef EXPORTER_DIAGNOSIS_BEING_MADE_H_
#define EXPORTER_DIAGNOSIS_BEING_MADE_H_

#include <cstddef>
#include <optional>
#include <vector>

#include "exporter/diagnosis/blocked_elsewhere.h"
#include "exporter/diagnosis/communicator_facts.h"
#include "exporter/diagnosis/hang_finding.h"

namespace nccl_pulse {

// If ranks are missing that should be here, and the processes of the others have called nothing, on
// no communicator, since they came to this one.
std::optional<HangFinding> ConcludeBeingMade(const CommunicatorFacts& facts);

// Finds the processes of the missing ranks in a communicator whose other ranks are the same, and
// leaves those alone that are not there either. Of a communicator over several nodes nothing is
// left without such a process: its endpoint may just not be among those that were asked.
void FindAbsent(const std::vector<CommunicatorView>& views, const RanksOfProcesses& ranks,
                std::size_t here, std::optional<HangFinding>* found);

}  // namespace nccl_pulse

#endif  // EXPORTER_DIAGNOSIS_BEING_MADE_H_
