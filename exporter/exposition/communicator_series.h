// Adds the series of processes and their communicators to a page.
//
// Thread: any, no state.
#ifndef EXPORTER_EXPOSITION_COMMUNICATOR_SERIES_H_
#define EXPORTER_EXPOSITION_COMMUNICATOR_SERIES_H_

#include <cstdint>
#include <string>

#include "exporter/exposition/family_set.h"
#include "metrics/snapshot.h"

namespace nccl_pulse {

// Adds one communicator's series. `now_ns` (CLOCK_REALTIME) decides whether data is outdated; see
// ActivityOf (exporter/diagnosis/facts/rank_activity.h).
void AddCommunicator(const ProcessSnapshot& process, const CommunicatorSnapshot& comm,
                     int64_t now_ns, FamilySet* set);

// Returns the inode of the process' PID namespace; "" if it is the host's initial one, or unknown.
std::string PidNamespace(const ProcessSnapshot& process);

// Adds one process' series, except those of its communicators.
void AddProcess(const ProcessSnapshot& process, FamilySet* set);

}  // namespace nccl_pulse

#endif  // EXPORTER_EXPOSITION_COMMUNICATOR_SERIES_H_
