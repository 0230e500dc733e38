#include "exporter/diagnosis/words/wait_words.h"

#include <algorithm>
#include <cstddef>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "exporter/diagnosis/words/rank_words.h"

namespace nccl_pulse {
namespace {

std::string KindWords(const CallOrderSnapshot::Kind& kind, bool with_root) {
  return absl::StrCat(kind.op, " of ", kind.bytes, " bytes",
                      kind.datatype.empty() ? "" : absl::StrCat(" (", kind.datatype, ")"),
                      with_root ? absl::StrCat(" with root ", kind.root) : "");
}

}  // namespace

std::string JoinFirst(const std::vector<std::string>& all, const char* separator) {
  const std::size_t listed = std::min(all.size(), kMostListed);
  return absl::StrCat(
      absl::StrJoin(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(listed), separator),
      listed < all.size() ? absl::StrCat(separator, all.size() - listed, " more") : "");
}

const char* WhyNotLaunched(const Ranks& ranks) {
  const bool are_inside = std::all_of(ranks.begin(), ranks.end(), [](const RankView* rank) {
    const std::vector<CommunicatorSnapshot>& all = rank->process->communicators;
    return std::any_of(all.begin(), all.end(),
                       [](const auto& each) { return each.are_unreported_in_group; });
  });
  return are_inside ? "inside NCCL (setting up a connection, or a group that was not ended)"
                    : "the call waits in NCCL, has failed, or was to its own rank";
}

std::string WhyUnseen(const RankView& rank) {
  if (IsInsideSendOrRecv(rank)) {
    return absl::StrCat("its ", rank.communicator->last_call_op,
                        " is not launched: ", WhyNotLaunched({&rank}));
  }
  const char* why = UnknownReasonWords(rank.activity.reason);
  if (rank.activity.reason != UnknownReason::kPollerStalled) return why;
  switch (rank.process->run_state) {
    case RunState::kRunning:
      return absl::StrCat(why,
                          ", though the process is (a call of the driver that does not return?)");
    case RunState::kUninterruptible:
      return absl::StrCat(why,
                          ", and the process is in uninterruptible sleep (D): a driver or I/O");
    default:
      break;
  }
  const char* const why_not = WhyNotRunning(rank.process->run_state);
  return *why_not == '\0' ? why : absl::StrCat(why, ": the process is ", why_not);
}

std::string PeerWaitWords(const RankView& rank, bool sends, uint64_t peer) {
  return absl::StrCat("rank ", rank.rank(), " waits in ", sends ? "Send" : "Recv", " for rank ",
                      peer);
}

std::string MismatchWords(const Mismatch& mismatch) {
  std::map<std::string, const Ranks*> by_words;
  const bool is_root = mismatch.by == Mismatch::By::kRoots;
  for (const CallSide& side : mismatch.sides) {
    by_words[side.kind != nullptr ? KindWords(*side.kind, is_root) : CallWords(side.calls)] =
        &side.ranks;
  }
  const std::string sides = absl::StrJoin(by_words, "; ", [](std::string* out, const auto& side) {
    *out += Fill("{who} {has|have} called {what}", *side.second,
                 {{"what", side.first.empty() ? "neither" : side.first}});
  });
  const std::string number = absl::StrCat(mismatch.call_number);
  const char* text = "";
  switch (mismatch.by) {
    case Mismatch::By::kCallNumber:
      text = "The ranks' calls differ at collective {number} of this communicator: {sides}.";
      break;
    case Mismatch::By::kRoots:
      text =
          "The ranks' calls differ at collective {number} of this communicator: the roots differ: "
          "{sides}.";
      break;
    case Mismatch::By::kSizes:
      text = "The ranks have called different sizes, which never complete: {sides}.";
      break;
    case Mismatch::By::kOperations:
      text = "The ranks have called different operations, which never complete: {sides}.";
      break;
  }
  return Fill(text, {}, {{"number", number}, {"sides", sides}});
}

std::string PositionWords(const ReplayPosition& at) {
  const std::string of = absl::StrCat(" of ", at.calls, " of graph ", at.graph);
  if (at.until <= at.before) {
    return at.before == 0 ? absl::StrCat("before captured call 1", of)
                          : absl::StrCat("after captured call ", at.before, of);
  }
  return at.until == at.before + 1
             ? absl::StrCat("at captured call ", at.until, of)
             : absl::StrCat("among captured calls ", at.before + 1, " to ", at.until, of);
}

std::string LaunchedWords(const Ranks& ranks) {
  Calls what;
  for (const RankView* rank : ranks) {
    const CommunicatorSnapshot& communicator = *rank->communicator;
    if (communicator.launches - communicator.launches_completed != 1 ||
        communicator.last_call_op.empty()) {
      return "what the others wait in";
    }
    what[{communicator.last_call_op, communicator.last_call_size_class}] = 1;
  }
  return what.size() == 1 ? CallWords(what) : "what the others wait in";
}

std::string EndedWords(const Ranks& ranks) {
  return Capital(Enumerate(ranks, kMostListed, [](const RankView* rank) {
    return absl::StrCat("the process of ", Name(*rank),
                        rank->process->end == ProcessEnd::kExit
                            ? " exited without finalizing the communicator"
                            : " ended without finalizing the communicator");
  }));
}

}  // namespace nccl_pulse
