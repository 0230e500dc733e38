// The series of one process, but for those of its communicators.
//
// Thread: any, no state.
#ifndef EXPORTER_EXPOSITION_PROCESS_SERIES_H_
#define EXPORTER_EXPOSITION_PROCESS_SERIES_H_

#include <string>

#include "exporter/exposition/family_set.h"
#include "metrics/snapshot.h"

namespace nccl_pulse {

// The label that tells processes with one pid apart; "" where it is not known.
std::string PidNamespace(const ProcessSnapshot& process);

void AddProcess(const ProcessSnapshot& process, FamilySet* set);

}  // namespace nccl_pulse

#endif  // EXPORTER_EXPOSITION_PROCESS_SERIES_H_
