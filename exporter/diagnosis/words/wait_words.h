// Formats the call in which ranks wait, or the reason why it is not known, as parts of sentences.
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

// Joins the first kMostListed texts, and adds the number of further ones.
std::string JoinFirst(const std::vector<std::string>& all, const char* separator);

// Returns the sentence of kMismatched, with each side's ranks and call.
std::string MismatchWords(const Mismatch& mismatch);

// Returns why these ranks' last call has no launch.
const char* WhyNotLaunched(const Ranks& ranks);
// Returns why it is not known whether a rank has work in flight, with the state of its process if
// that is the reason.
std::string WhyUnseen(const RankView& rank);

// Returns "rank 1 waits in Send for rank 2".
std::string PeerWaitWords(const RankView& rank, bool sends, uint64_t peer);
// Returns "among captured calls 1 to 60 of 65 of graph 1".
std::string PositionWords(const ReplayPosition& at);
// Returns "AllReduce (up to 64KiB)" if each rank has one launch in flight, all of one kind; else
// "".
std::string LaunchedWords(const Ranks& ranks);
// Returns "The process of rank 3 (pid 103) exited without finalizing the communicator".
std::string EndedWords(const Ranks& ranks);

}  // namespace nccl_pulse

#endif  // EXPORTER_DIAGNOSIS_WORDS_WAIT_WORDS_H_
