// The text of kMismatched: who called what.
//
// Thread: any, no state.
#ifndef EXPORTER_DIAGNOSIS_WORDS_MISMATCH_WORDS_H_
#define EXPORTER_DIAGNOSIS_WORDS_MISMATCH_WORDS_H_

#include <string>

#include "exporter/diagnosis/facts/call_mismatch.h"

namespace nccl_pulse {

std::string MismatchWords(const Mismatch& mismatch);

}  // namespace nccl_pulse

#endif  // EXPORTER_DIAGNOSIS_WORDS_MISMATCH_WORDS_H_
