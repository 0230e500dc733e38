// A finding in English: one or two sentences for an engineer at three in the morning.
//
// Thread: any, no state.
#ifndef EXPORTER_DIAGNOSIS_HANG_WORDS_H_
#define EXPORTER_DIAGNOSIS_HANG_WORDS_H_

#include <string>

#include "exporter/diagnosis/hang_finding.h"

namespace nccl_pulse {

std::string HangWords(const HangFinding& finding);
// Of kPeers: the call that a suspect has not made for another rank, "Recv from rank 1"; "": several.
std::string PeerCallWords(const HangFinding& finding);
std::string QueuedWords(const QueuedFinding& finding);
std::string AheadWords(const AheadFinding& finding);

// Why it is not known whether a rank has work in flight: with what its process does, if that is why.
std::string WhyUnseen(const RankView& rank);

}  // namespace nccl_pulse

#endif  // EXPORTER_DIAGNOSIS_HANG_WORDS_H_
