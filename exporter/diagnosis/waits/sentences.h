// Describes a stall in one or two sentences, for an engineer at three in the morning. Each clause
// states a checked fact.
//
// Thread: any, no state.
#ifndef EXPORTER_DIAGNOSIS_WAITS_SENTENCES_H_
#define EXPORTER_DIAGNOSIS_WAITS_SENTENCES_H_

#include <string>

#include "exporter/diagnosis/waits/stall.h"

namespace nccl_pulse {

std::string StallWords(const Stall& stall);

// Returns the call that the suspects have not made, such as "Recv from rank 1". "": several calls.
std::string MissingPeerCall(const Stall& stall);

// Returns sentences about GPUs that have not begun their launches, if no rank is known to wait for
// them. `with_elsewhere`: also names the communicator in which they may wait, unseen.
std::string QueuedWords(const Stall& queued, bool with_elsewhere);

}  // namespace nccl_pulse

#endif  // EXPORTER_DIAGNOSIS_WAITS_SENTENCES_H_
