// What ranks wait in, and why it is not known, as parts of sentences.
//
// Thread: any, no state.
#ifndef EXPORTER_DIAGNOSIS_WORDS_WAIT_WORDS_H_
#define EXPORTER_DIAGNOSIS_WORDS_WAIT_WORDS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "exporter/diagnosis/diagnosis_result.h"
#include "exporter/diagnosis/facts/call_mismatch.h"

namespace nccl_pulse {

// The first kMostListed, and how many more there are.
std::string JoinFirst(const std::vector<std::string>& all, const char* separator);

// The sentence of kMismatched: who called what.
std::string MismatchWords(const Mismatch& mismatch);

// Why a call has launched nothing.
const char* WhyNotLaunched(bool may_have_returned);
// Why it is not known whether a rank has work in flight: with what its process does, if that is why.
std::string WhyUnseen(const RankView& rank);

// "rank 1 waits in Send for rank 2"
std::string PeerWaitWords(const RankView& rank, bool sends, uint64_t peer);
// "among captured calls 1 to 60 of 65 of graph 1"
std::string PlaceWords(const ReplayPlace& at);
// "AllReduce (up to 64KiB)" if the ranks have one launch in flight, of one kind.
std::string LaunchedWords(const Ranks& ranks);
// "The process of rank 3 (pid 103) exited without finalizing the communicator"
std::string EndedWords(const Ranks& ranks);

}  // namespace nccl_pulse

#endif  // EXPORTER_DIAGNOSIS_WORDS_WAIT_WORDS_H_
