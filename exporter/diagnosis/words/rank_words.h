// Formats ranks, calls and waits for sentences of the diagnosis.
//
// Thread: any, no state.
#ifndef EXPORTER_DIAGNOSIS_WORDS_RANK_WORDS_H_
#define EXPORTER_DIAGNOSIS_WORDS_RANK_WORDS_H_

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "exporter/diagnosis/diagnosis_result.h"
#include "exporter/diagnosis/facts/call_counts.h"
#include "exporter/diagnosis/facts/call_mismatch.h"
#include "exporter/diagnosis/facts/communicator_facts.h"

namespace nccl_pulse {

inline constexpr std::size_t kMostListed = 8;  // names in a list, before "and 3 more"

// Returns "a, b and c".
template <typename List, typename Formatter>
std::string Enumerate(const List& list, std::size_t most, const Formatter& formatter) {
  std::string text;
  std::size_t count = 0;
  for (const auto& each : list) {
    if (count == most) return absl::StrCat(text, " and ", list.size() - count, " more");
    if (count > 0) text += count + 1 == list.size() ? " and " : ", ";
    text += formatter(each);
    ++count;
  }
  return text;
}

std::string Name(
    const RankView& rank);  // "rank 3 (pid 4711, GPU 3)", with its host if there are several
std::string Names(const Ranks& ranks);      // Name of each rank
std::string Numbers(const Ranks& ranks);    // "ranks 0, 1 and 2"
std::string CallWords(const Calls& calls);  // "AllReduce (up to 1MiB)", "2 x AllGather ..."
// Returns calls with their numbers: "AllReduce #8 (up to 1MiB)" after seven calls in `before`; for
// two calls, "AllReduce #8 and #9 (up to 1MiB)".
std::string NumberedCallWords(const Calls& calls, const Calls& before);
std::string Capital(std::string text);
std::string ClockWords(int64_t realtime_ns);  // "03:12:40 UTC"

// Fills a template about `ranks`: {Who} and {who} are their names, {Ranks} and {ranks} their
// numbers, and {is|are} agrees with their number. Each other {slot} must be in `slots`.
using Slots = std::initializer_list<std::pair<std::string_view, std::string>>;
std::string Fill(std::string_view text, const Ranks& ranks, Slots slots = {});
// Like Fill, but returns "" without ranks.
std::string FillIfAny(std::string_view text, const Ranks& ranks, Slots slots = {});

// Joins the first kMostListed texts, and adds the number of further ones.
std::string JoinFirst(const std::vector<std::string>& all, const char* separator);

// Returns the sentence of kMismatched, with each side's ranks and call.
std::string MismatchWords(const Mismatch& mismatch);

// Returns why these ranks' last call has no launch.
const char* WhyNotLaunched(const Ranks& ranks);
// Returns why it is not known whether a rank has work in flight.
std::string WhyUnseen(const RankView& rank);

// Returns "rank 1 waits in Send for rank 2".
std::string PeerWaitWords(const RankView& rank, bool sends, uint64_t peer);
// Returns "among captured calls 1 to 60 of 65 of graph 1".
std::string PositionWords(const ReplayPosition& at);
// Returns "AllReduce (up to 64KiB)" if each rank has one launch in flight, all of one kind; else
// "".
std::string LaunchedWords(const Ranks& ranks);
// Returns "The process of rank 3 (pid 103) exited at 03:12:40 UTC without finalizing the
// communicator".
std::string EndedWords(const Ranks& ranks);
// Returns " at 03:12:40 UTC", when the process ended; "" if that is not known.
std::string AtEnd(const ProcessSnapshot& process);

}  // namespace nccl_pulse

#endif  // EXPORTER_DIAGNOSIS_WORDS_RANK_WORDS_H_
