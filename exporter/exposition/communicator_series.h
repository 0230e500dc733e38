// Adds the series of one communicator of one process.
//
// Thread: any, no state.
#ifndef EXPORTER_EXPOSITION_COMMUNICATOR_SERIES_H_
#define EXPORTER_EXPOSITION_COMMUNICATOR_SERIES_H_

#include <cstdint>
#include <string>

#include "exporter/exposition/family_set.h"
#include "metrics/snapshot.h"

namespace nccl_pulse {

// `now_ns` (CLOCK_REALTIME) and `stands_after_ns` decide which data is outdated; see ActivityOf
// (exporter/diagnosis/rank_activity.h).
void AddCommunicator(const ProcessSnapshot& process, const CommunicatorSnapshot& comm,
                     int64_t now_ns, int64_t stands_after_ns, FamilySet* set);

// Adds the series of one process, except those of its communicators.

// Returns the label that tells processes with equal pids apart; "" if unknown.
std::string PidNamespace(const ProcessSnapshot& process);

void AddProcess(const ProcessSnapshot& process, FamilySet* set);

}  // namespace nccl_pulse

#endif  // EXPORTER_EXPOSITION_COMMUNICATOR_SERIES_H_
