#include "exporter/diagnosis/facts/call_facts.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"

namespace nccl_pulse {

namespace {

// Of the last call of this kind. 0: there is none, or some were captured, which tables count and the
// comparison of ranks does not.
uint64_t NumberOf(const std::pair<std::string, int>& kind,
                  const CommunicatorSnapshot& communicator) {
  uint64_t calls = 0;
  for (const CallCountSnapshot& call : communicator.calls) {
    if (call.op != kind.first || call.size_class != kind.second) continue;
    if (call.captured && call.calls != 0) return 0;
    calls += call.calls;
  }
  return calls;
}

}  // namespace

std::string LastCalled(const Ranks& waiting) {
  std::set<std::string> names;
  for (const RankView* rank : waiting) names.insert(rank->communicator->last_call_op);
  if (names.size() == 1 && !names.begin()->empty()) return *names.begin();
  std::set<std::string> all;
  for (const RankView* rank : waiting) {
    for (const auto& call : rank->communicator->calls) all.insert(call.op);
  }
  return all.size() == 1 ? *all.begin() : "";
}

bool IsBehindOwnWork(const CommunicatorFacts& facts) {
  bool any = false;
  for (const RankView* rank : facts.live) {
    if (rank->activity.is_idle()) continue;
    if (rank->activity.oldest_launch != OldestLaunch::kNotBegun) return false;
    any = true;
  }
  return any;
}

bool AreOwedLaunched(const CommunicatorFacts& facts) {
  const uint64_t owed = Total(facts.owed);
  return std::all_of(facts.live.begin(), facts.live.end(), [owed](const RankView* rank) {
    const CommunicatorSnapshot& communicator = *rank->communicator;
    return !rank->activity.is_in_flight() ||
           communicator.launches - communicator.launches_completed >= owed;
  });
}

Ranks BehindUnseen(const CommunicatorFacts& facts) {
  Ranks unseen;
  for (const RankView* rank : facts.behind) {
    const bool is_said = Contains(facts.stopped, rank) || Contains(facts.owing, rank);
    if (rank->activity.is_unknown() && !is_said) unseen.push_back(rank);
  }
  return unseen;
}

bool IsOwedProven(const CommunicatorFacts& facts) {
  if (facts.owing.empty() || facts.is_mismatched) return false;
  return !facts.view->has_point_to_point ||
         (facts.are_all_live() &&
          std::all_of(facts.live.begin(), facts.live.end(), [&facts](const RankView* rank) {
            return rank->InFlightSince() != 0 || Contains(facts.owing, rank);
          }));
}

Ranks NamedByCounts(const CommunicatorFacts& facts) {
  Ranks named;
  if (!facts.are_all_live() || facts.view->has_point_to_point) return named;
  for (const RankView* rank : facts.behind) {
    if (Contains(facts.unreported, rank) && facts.IsFurthestBehind(*rank)) {
      named.push_back(rank);
    }
  }
  return named;
}

Calls CallsOwedBy(const CommunicatorFacts& facts, const Ranks& ranks) {
  Calls owed;
  for (const RankView* rank : ranks) {
    for (const auto& [kind, count] : Excess(facts.calls[facts.most], facts.CallsOf(*rank))) {
      owed[kind] = std::max(owed[kind], count);
    }
  }
  return owed;
}

Calls CallsBefore(const Calls& owed, const Ranks& ranks) {
  Calls before;
  for (const auto& [kind, count] : owed) {
    std::set<uint64_t> each;
    for (const RankView* rank : ranks) each.insert(NumberOf(kind, *rank->communicator));
    if (each.size() == 1 && *each.begin() != 0) before[kind] = *each.begin();
  }
  return before;
}

Calls LastOfOwed(const Calls& owed, const Ranks& ranks) {
  Calls last;
  for (const RankView* rank : ranks) {
    const CommunicatorSnapshot& communicator = *rank->communicator;
    last[{communicator.last_call_op, communicator.last_call_size_class}] = 1;
  }
  if (last.size() != 1) return {};
  // Without a size: some calls made nothing, and tables count them, too.
  const bool is_owed = std::any_of(owed.begin(), owed.end(), [&last](const auto& each) {
    return each.first.first == last.begin()->first.first && each.first.second >= 0;
  });
  return is_owed ? CallsBefore(last, ranks) : Calls();
}

bool MayAllHaveLeft(const CommunicatorFacts& facts, const Ranks& behind) {
  Calls least = facts.CallsOf(*behind.front());
  for (const RankView* rank : behind) least = Common(least, facts.CallsOf(*rank));
  const auto ahead =
      std::count_if(facts.calls.begin(), facts.calls.end(),
                    [&least](const Calls& calls) { return !Excess(calls, least).empty(); });
  if (ahead != 1) return false;
  for (const RankView* rank : behind) {
    for (const auto& [kind, count] : Excess(facts.calls[facts.most], facts.CallsOf(*rank))) {
      if (WaitsForAll(kind.first)) return false;
    }
  }
  return true;
}

bool IsPointToPointPossible(const Ranks& waiting) {
  return !std::all_of(waiting.begin(), waiting.end(), [](const auto* rank) {
    return IsCollective(rank->communicator->last_call_op);
  });
}

std::vector<int32_t> UnseenRanks(const CommunicatorFacts& facts, std::size_t most) {
  std::vector<int32_t> unseen;
  std::size_t at = 0;
  const std::vector<RankView>& seen = facts.view->ranks;
  for (int32_t rank = 0; rank < facts.view->nranks && unseen.size() < most; ++rank) {
    while (at < seen.size() && seen[at].rank() < rank) ++at;
    if (at == seen.size() || seen[at].rank() != rank) unseen.push_back(rank);
  }
  return unseen;
}

std::string WhyUnseen(const RankView& rank) {
  if (IsInsideNccl(rank)) {
    return absl::StrCat(
        "its ", rank.communicator->last_call_op, " is not launched: ",
        MayHaveReturned(rank)
            ? "inside NCCL (setting up a connection?), or a call that failed or was to its own rank"
            : "inside NCCL (setting up a connection, or a group that was not ended)");
  }
  const char* why = UnknownReasonWords(rank.activity.reason);
  if (rank.activity.reason != UnknownReason::kPollerStands) return why;
  switch (rank.process->run_state) {
    case RunState::kRunning:
      return absl::StrCat(why,
                          ", though the process is (a call of the driver that does not return?)");
    case RunState::kUninterruptible:
      return absl::StrCat(why,
                          ", and the process is in uninterruptible sleep (D): a driver or I/O");
    case RunState::kStopped:
      return absl::StrCat(why, ": the process is stopped by a signal");
    case RunState::kTraced:
      return absl::StrCat(why, ": the process is held by a debugger");
    default:
      return why;
  }
}

}  // namespace nccl_pulse
