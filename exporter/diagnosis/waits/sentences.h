// A stall in English: one or two sentences for an engineer at three in the morning. Each clause states a
// fact that was checked.
//
// Thread: any, no state.
#ifndef EXPORTER_DIAGNOSIS_WAITS_SENTENCES_H_
#define EXPORTER_DIAGNOSIS_WAITS_SENTENCES_H_

#include <string>

#include "exporter/diagnosis/waits/stall.h"

namespace nccl_pulse {

std::string StallWords(const Stall& stall);

// "Recv from rank 1": the call that the suspects have not made; "": there are several.
std::string MissingPeerCall(const Stall& stall);

// GPUs that have not begun what they launched, and that nobody is known to wait for. `with_elsewhere`:
// also where they may wait unseen.
std::string QueuedWords(const Stall& queued, bool with_elsewhere);

// One rank has made calls that the others have not, and may have finished them.
std::string AheadWords(const Ranks& behind, const RankView& ahead, const Calls& calls);

}  // namespace nccl_pulse

#endif  // EXPORTER_DIAGNOSIS_WAITS_SENTENCES_H_
