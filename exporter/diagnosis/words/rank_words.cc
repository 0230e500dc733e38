#include "exporter/diagnosis/words/rank_words.h"

#include <algorithm>
#include <map>

#include "absl/strings/str_join.h"
#include "exporter/base/size_words.h"
#include "exporter/diagnosis/words/words.h"
#include "metrics/size_class.h"

namespace nccl_pulse {
namespace {

constexpr std::size_t kMostOperations = 3;

// Returns " (up to 1MiB)"; "" for a class below 0, for which sizes do not matter.
std::string SizeOf(int size_class) {
  if (size_class < 0) return "";
  return absl::StrCat(" (", SizeWords(SizeClassName(size_class), "up to ", "over "), ")");
}

std::string BytesWords(const CallOrderSnapshot::Kind& kind) {
  return absl::StrCat(kind.bytes, " bytes",
                      kind.datatype.empty() ? "" : absl::StrCat(" (", kind.datatype, ")"));
}

std::string KindWords(const CallOrderSnapshot::Kind& kind, bool with_root) {
  return absl::StrCat(kind.op, " of ", BytesWords(kind),
                      with_root ? absl::StrCat(" with root ", kind.root) : "");
}

// Fills a template about a sender and a receiver.
std::string FillPeers(std::string_view text, const Mismatch& mismatch) {
  const CallSide& sent = mismatch.sides[0];
  const CallSide& received = mismatch.sides[1];
  const uint64_t more = (sent.kind->bytes - received.kind->bytes) & PeerCallsSnapshot::kBytesMask;
  const uint64_t less = (received.kind->bytes - sent.kind->bytes) & PeerCallsSnapshot::kBytesMask;
  return Fill(text, {},
              {{"number", absl::StrCat(mismatch.call_number)},
               {"sender", Name(*sent.ranks.front())},
               {"receiver", Name(*received.ranks.front())},
               {"sent", BytesWords(*sent.kind)},
               {"received", BytesWords(*received.kind)},
               {"difference", absl::StrCat(std::min(more, less))},
               {"more", more < less ? "more" : "fewer"}});
}

}  // namespace

std::string Name(const RankView& rank) {
  const std::string& gpu = rank.communicator->gpu;
  const std::string& host = rank.process->hostname;
  return absl::StrCat("rank ", rank.rank(), " (",
                      rank.is_of_many_hosts && !host.empty() ? absl::StrCat(host, ", ") : "",
                      rank.process->is_of_dump
                          ? absl::StrCat("global rank ", rank.process->global_rank)
                          : absl::StrCat("pid ", PidWords(*rank.process)),
                      gpu.empty() ? "" : absl::StrCat(", GPU ", gpu), ")");
}

std::string Names(const Ranks& ranks) {
  return Enumerate(ranks, kMostListed, [](const RankView* rank) { return Name(*rank); });
}

std::string Numbers(const Ranks& ranks) {
  return absl::StrCat(ranks.size() == 1 ? "rank " : "ranks ",
                      Enumerate(ranks, kMostListed,
                                [](const RankView* rank) { return absl::StrCat(rank->rank()); }));
}

std::string CallWords(const Calls& calls) { return NumberedCallWords(calls, {}); }

std::string NumberedCallWords(const Calls& calls, const Calls& before) {
  return Enumerate(calls, kMostOperations, [&before](const auto& each) {
    const auto& [kind, count] = each;
    const auto known = before.find(kind);
    if (known == before.end()) {
      return absl::StrCat(count == 1 ? "" : absl::StrCat(count, " x "), kind.first,
                          SizeOf(kind.second));
    }
    const uint64_t first = known->second + 1;
    return absl::StrCat(
        kind.first, " #", first,
        count == 1 ? "" : absl::StrCat(count == 2 ? " and #" : " to #", first + count - 1),
        SizeOf(kind.second));
  });
}

std::string Capital(std::string text) {
  if (!text.empty() && text[0] >= 'a' && text[0] <= 'z') text[0] -= 'a' - 'A';
  return text;
}

std::string Fill(std::string_view text, const Ranks& ranks, Slots slots) {
  std::string filled;
  while (true) {
    const std::size_t begin = text.find('{');
    filled += text.substr(0, begin);
    if (begin == text.npos) return filled;
    const std::size_t end = text.find('}', begin);
    const std::string_view slot = text.substr(begin + 1, end - begin - 1);
    text.remove_prefix(end + 1);
    if (const std::size_t bar = slot.find('|'); bar != slot.npos) {
      filled += ranks.size() == 1 ? slot.substr(0, bar) : slot.substr(bar + 1);
    } else if (slot == "Who" || slot == "who") {
      filled += slot == "Who" ? Capital(Names(ranks)) : Names(ranks);
    } else if (slot == "Ranks" || slot == "ranks") {
      filled += slot == "Ranks" ? Capital(Numbers(ranks)) : Numbers(ranks);
    }
    for (const auto& [name, value] : slots) filled += name == slot ? value : "";
  }
}

std::string FillIfAny(std::string_view text, const Ranks& ranks, Slots slots) {
  return ranks.empty() ? "" : Fill(text, ranks, slots);
}

std::string JoinFirst(const std::vector<std::string>& all, const char* separator) {
  const std::size_t listed = std::min(all.size(), kMostListed);
  return absl::StrCat(
      absl::StrJoin(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(listed), separator),
      listed < all.size() ? absl::StrCat(separator, all.size() - listed, " more") : "");
}

const char* WhyNotLaunched(const Ranks& ranks) {
  const bool are_inside = std::all_of(ranks.begin(), ranks.end(), [](const RankView* rank) {
    const std::vector<CommunicatorSnapshot>& all = rank->process->communicators;
    const auto searched = static_cast<std::ptrdiff_t>(std::min(all.size(), kMostSearched));
    return rank->communicator->are_unreported_in_group ||
           std::any_of(all.begin(), all.begin() + searched,
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
  return UnknownReasonWords(rank.activity.reason);
}

std::string PeerWaitWords(const RankView& rank, bool sends, uint64_t peer) {
  return absl::StrCat("rank ", rank.rank(), " waits in ", sends ? "Send" : "Recv", " for rank ",
                      peer);
}

std::string MismatchWords(const Mismatch& mismatch) {
  std::map<std::string, const Ranks*> by_words;
  const bool is_root = mismatch.by == Mismatch::By::kRoots;
  for (const CallSide& side : mismatch.sides) {
    by_words[side.kind ? KindWords(*side.kind, is_root) : CallWords(side.calls)] = &side.ranks;
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
    case Mismatch::By::kPeerCall:
      text =
          "Send #{number} from {sender} to {receiver} has {sent}, and its Recv takes {received}.";
      break;
    case Mismatch::By::kPeerTotals:
      text =
          "The first {number} Sends from {sender} to {receiver} have {difference} bytes {more} "
          "than their Recvs take.";
      break;
  }
  if (mismatch.is_of_peers()) return FillPeers(text, mismatch);
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
                        rank->process->end == ProcessEnd::kExit ? " exited" : " ended",
                        AtEnd(*rank->process), " without finalizing the communicator");
  }));
}

std::string AtEnd(const ProcessSnapshot& process) {
  const bool is_known = process.end_realtime_ns != 0 && !process.is_from_outside;
  return is_known ? absl::StrCat(" at ", ClockWords(process.end_realtime_ns)) : "";
}

// Uses no time zone library, because this may run in a job's process.
std::string ClockWords(int64_t realtime_ns) {
  constexpr int64_t kDay = 86400;
  const int64_t second = (realtime_ns / 1000000000 % kDay + kDay) % kDay;
  return absl::StrCat(absl::Dec(second / 3600, absl::kZeroPad2), ":",
                      absl::Dec(second / 60 % 60, absl::kZeroPad2), ":",
                      absl::Dec(second % 60, absl::kZeroPad2), " UTC");
}

}  // namespace nccl_pulse
