#include "exporter/diagnosis/verdict_draft.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_join.h"

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

bool MayHoldUp(const CommunicatorFacts& facts, const RankView& rank) {
  return facts.calls_known != CallsKnown::kYes || facts.view->has_point_to_point ||
         !facts.HasCalledAll(rank) ||
         std::any_of(facts.live.begin(), facts.live.end(), [&rank](const RankView* other) {
           return other->communicator->launches > rank.communicator->launches;
         });
}

Ranks FirstFailed(const Ranks& failed) {
  // Errors are seen within a second, and clocks of hosts differ.
  constexpr int64_t kTogetherNs = 3000000000;
  int64_t earliest_ns = INT64_MAX;
  for (const RankView* rank : failed) {
    if (rank->is_failed_by_peer) continue;
    earliest_ns = std::min(earliest_ns, rank->failed->driver_error_realtime_ns);
  }
  Ranks first;
  for (const RankView* rank : failed) {
    const int64_t after_ns = ElapsedNs(rank->failed->driver_error_realtime_ns, earliest_ns);
    if (!rank->is_failed_by_peer && after_ns <= kTogetherNs) first.push_back(rank);
  }
  return first;
}

bool IsAnyKnownToHaveBegun(const Ranks& ranks) {
  return std::any_of(ranks.begin(), ranks.end(), [](const RankView* rank) {
    return rank->activity.oldest_launch == OldestLaunch::kBegun &&
           rank->communicator->launches - rank->communicator->launches_completed == 1;
  });
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

namespace {

// Of ranks that called different things, those outside the largest side; none if no side is the
// largest.
Ranks Fewer(const std::vector<CallSide>& sides) {
  const auto largest = std::max_element(
      sides.begin(), sides.end(),
      [](const auto& a, const auto& b) { return a.ranks.size() < b.ranks.size(); });
  Ranks fewer;
  for (auto side = sides.begin(); side != sides.end(); ++side) {
    if (side == largest) continue;
    if (side->ranks.size() == largest->ranks.size()) return {};
    fewer.insert(fewer.end(), side->ranks.begin(), side->ranks.end());
  }
  std::sort(fewer.begin(), fewer.end(),
            [](const RankView* a, const RankView* b) { return a->rank() < b->rank(); });
  return fewer;
}

}  // namespace

VerdictDraft::VerdictDraft(const CommunicatorFacts& facts) : facts_(facts) {
  finding.view = facts.view;
  finding.are_all_seen = facts.are_all_seen();
}

void VerdictDraft::Say(HangVerdict verdict, HangDetail detail, const Ranks& suspects) {
  finding.verdict = verdict;
  finding.detail = detail;
  finding.suspects = suspects;
  // Ranks that called different things wait for each other.
  if (verdict == HangVerdict::kMismatched) return;
  Ranks& waiting = finding.waiting;
  waiting.erase(
      std::remove_if(waiting.begin(), waiting.end(),
                     [&suspects](const RankView* rank) { return Contains(suspects, rank); }),
      waiting.end());
}

void VerdictDraft::SayMismatch(Mismatch mismatch) {
  finding.op = absl::StrJoin(mismatch.operations, ",");
  finding.mismatch.sides = std::move(mismatch.sides);
  finding.mismatch.call_number = mismatch.call_number;
  const Ranks fewer = Fewer(finding.mismatch.sides);
  Say(HangVerdict::kMismatched, mismatch.detail, fewer.empty() ? facts_.live : fewer);
}

void VerdictDraft::SayOwing() {
  finding.op = OnlyOperation(facts_.owed);
  finding.owed.calls = facts_.owed;
  finding.owed.before = CallsBefore(finding.owed.calls, facts_.owing);
  finding.owed.last = LastOfOwed(finding.owed.calls, facts_.owing);
  Say(HangVerdict::kRankNotCalled, HangDetail::kOwes, facts_.owing);
}

void VerdictDraft::AddOwing() {
  finding.owed.also = facts_.owing;
  finding.owed.calls = facts_.owed;
}

void VerdictDraft::SayBehindUnseen() {
  finding.owed.ahead = facts_.live[facts_.most];
  const Ranks named = NamedByCounts(facts_);
  if (named.empty()) return SayUnknown(HangDetail::kBehindUnseen);
  Ranks& unseen = finding.owed.behind_unseen;
  unseen.erase(std::remove_if(unseen.begin(), unseen.end(),
                              [&named](const RankView* rank) { return Contains(named, rank); }),
               unseen.end());
  finding.owed.calls = CallsOwedBy(facts_, named);
  finding.op = OnlyOperation(finding.owed.calls);
  finding.owed.before = CallsBefore(finding.owed.calls, named);
  finding.owed.last = LastOfOwed(finding.owed.calls, named);
  Say(HangVerdict::kRankNotCalled, HangDetail::kOwes, named);
}

}  // namespace nccl_pulse
