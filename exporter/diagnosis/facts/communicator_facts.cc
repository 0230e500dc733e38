#include "exporter/diagnosis/facts/communicator_facts.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "exporter/diagnosis/facts/call_counts.h"

namespace nccl_pulse {

namespace {

bool IsFollowed(const RankView& rank) {
  const UnknownReason reason = rank.activity.reason;
  return rank.communicator->graph_position.followed != 0 &&
         reason != UnknownReason::kPollerNotStarted && reason != UnknownReason::kPollerStalled;
}

Calls CapturedCallsOf(const CommunicatorSnapshot& communicator) {
  Calls calls;
  for (const CallCountSnapshot& call : communicator.calls) {
    if (call.captured) calls[{call.op, call.size_class}] += call.calls;
  }
  return calls;
}

// Progress of a rank: replays begun, and stamps passed.
using Progress = std::pair<uint64_t, uint32_t>;
Progress ProgressOf(const RankView& rank) {
  return {rank.communicator->graph_replays, rank.communicator->graph_position.passed};
}

ReplaysKnown AreKnown(const Ranks& live) {
  Calls captured;
  for (const RankView* rank : live) {
    if (!IsFollowed(*rank)) return ReplaysKnown::kNotFollowed;
    const CommunicatorSnapshot& communicator = *rank->communicator;
    if (AreOtherCallsKnown(*rank->process, communicator) != CallsKnown::kYes) {
      return ReplaysKnown::kDiffer;
    }
    Calls calls = CapturedCallsOf(communicator);
    if (rank == live.front()) {
      captured = std::move(calls);
    } else if (calls != captured) {
      return ReplaysKnown::kDiffer;
    }
  }
  if (live.size() > 1 && !AreCapturedAlike(live)) return ReplaysKnown::kDiffer;
  return MayLeaveReplays(*live.front()->communicator) ? ReplaysKnown::kMayLeave
                                                      : ReplaysKnown::kYes;
}

// False if ranks have begun equally many replays, but the last one is of different graphs.
bool AreInOneOrder(const Ranks& live) {
  std::map<uint64_t, std::pair<uint32_t, uint32_t>> graphs;
  return std::all_of(live.begin(), live.end(), [&graphs](const RankView* rank) {
    const GraphPosition& position = rank->communicator->graph_position;
    const std::pair graph(position.graph, position.stamps);
    return graphs.try_emplace(rank->communicator->graph_replays, graph).first->second == graph;
  });
}

// True if, outside of graphs, no rank that is behind has called more than a rank that is ahead.
bool HasCalledLess(const Ranks& behind, const Ranks& ahead) {
  Calls least = CollectiveCalls(*ahead.front()->communicator);
  for (const RankView* rank : ahead) least = Common(least, CollectiveCalls(*rank->communicator));
  return std::all_of(behind.begin(), behind.end(), [&least](const RankView* rank) {
    return Excess(CollectiveCalls(*rank->communicator), least).empty();
  });
}

bool IsWithin(const RankView* rank) { return rank->activity.is_in_replay; }

// Counts that changed so recently may be from different moments.
constexpr int64_t kQuietNs = 1000000000;
void AddLive(const RankView& rank, CommunicatorFacts* facts) {
  facts->live.push_back(&rank);
  if (rank.activity.reason != UnknownReason::kLaunchNotReported ||
      !IsCollective(rank.communicator->last_call_op)) {
    return;
  }
  const int64_t since_ns = UnreportedSince(*facts->view, rank);
  const bool is_long = ElapsedNs(facts->now_ns, since_ns) >= facts->view->hang_after_ns / 2;
  if (since_ns != 0 && is_long) facts->unreported.push_back(&rank);
}

void CompareCalls(CommunicatorFacts* facts) {
  for (const RankView* rank : facts->live) {
    facts->calls.push_back(facts->abandoned.CountWithout(*rank));
  }
  if (!facts->calls.empty()) facts->least = facts->calls.front();
  for (std::size_t i = 1; i < facts->calls.size(); ++i) {
    if (facts->calls[i] != facts->least) facts->least = Common(facts->least, facts->calls[i]);
    if (Total(facts->calls[i]) > Total(facts->calls[facts->most])) facts->most = i;
  }
  for (std::size_t i = 0; i < facts->calls.size(); ++i) {
    const RankView* rank = facts->live[i];
    const Calls& most = facts->calls[facts->most];
    const CommunicatorSnapshot& communicator = *rank->communicator;
    facts->is_quiet &=
        ElapsedNs(facts->now_ns, std::max(communicator.last_launch_realtime_ns,
                                          communicator.unreported_since_realtime_ns)) >= kQuietNs;
    if (facts->calls[i] == most) continue;
    facts->is_mismatched |= !Excess(facts->calls[i], most).empty();
    const Calls missing = Excess(most, facts->calls[i]);
    if (missing.empty()) continue;
    facts->behind.push_back(rank);
    if (!rank->activity.is_idle() && !IsExiting(*rank)) {
      continue;
    }
    facts->owing.push_back(rank);
    for (const auto& [kind, count] : missing) {
      facts->owed[kind] = std::max(facts->owed[kind], count);
    }
  }
}

// Finds ended ranks that lack calls, by their calls before the end. All ranks make the same calls,
// so of any two ranks one is behind or they are equal.
void CompareEnded(const Ranks& ended, CommunicatorFacts* facts) {
  Ranks known;
  std::vector<Calls> calls;
  const Calls* most = facts->calls.empty() ? nullptr : &facts->calls[facts->most];
  calls.reserve(ended.size());  // `most` may point into it
  for (const RankView* rank : ended) {
    if (AreCallsKnown(*rank->process, *rank->communicator) != CallsKnown::kYes) continue;
    known.push_back(rank);
    calls.push_back(facts->abandoned.CountWithout(*rank));
    if (most == nullptr || Total(calls.back()) > Total(*most)) most = &calls.back();
  }
  if (most == nullptr) return;
  for (std::size_t i = 0; i < known.size(); ++i) {
    if (!Excess(*most, calls[i]).empty()) facts->ended_owing.push_back(known[i]);
  }
}

// True if each launch of the rank has exactly `parts` Sends and as many Recvs. The test is exact,
// because a rank that has skipped a launch, whose numbers stay wrong, looks like a rank that is
// about to launch.
bool HasParts(const RankView& rank, uint64_t parts) {
  const CommunicatorSnapshot& communicator = *rank.communicator;
  const uint64_t collectives = TotalCollectives(communicator);
  if (communicator.launches <= collectives) return false;
  const uint64_t exchanges = communicator.launches - collectives;
  return exchanges <= UINT64_MAX / parts && rank.CallsOf("Send") == exchanges * parts &&
         rank.CallsOf("Recv") == exchanges * parts;
}

}  // namespace

ReplayFacts CompareReplays(const Ranks& live) {
  ReplayFacts facts;
  if (live.empty()) return facts;
  facts.known = AreKnown(live);
  if (facts.known != ReplaysKnown::kYes) return facts;
  const auto is_less = [](const RankView* a, const RankView* b) {
    return ProgressOf(*a) < ProgressOf(*b);
  };
  const RankView& last = **std::min_element(live.begin(), live.end(), is_less);
  const RankView& first = **std::max_element(live.begin(), live.end(), is_less);
  Ranks ahead;
  for (const RankView* rank : live) {
    (ProgressOf(*rank) == ProgressOf(last) ? facts.behind : ahead).push_back(rank);
  }
  if (!AreInOneOrder(live) || (!ahead.empty() && !HasCalledLess(facts.behind, ahead))) {
    facts = {};
    facts.known = ReplaysKnown::kDiffer;
    return facts;
  }
  facts.ahead = &first;
  if (ahead.empty()) {
    facts.behind.clear();
    facts.are_all_within = std::all_of(live.begin(), live.end(), IsWithin);
    return facts;
  }
  // A rank that has passed a later stamp of a replay has completed collectives that need all ranks.
  // If another rank then seems to be behind, its count is wrong.
  if (first.communicator->graph_position.stamps > 1 &&
      std::none_of(ahead.begin(), ahead.end(), IsWithin)) {
    facts.behind.clear();
  }
  return facts;
}

int64_t UnreportedSince(const CommunicatorView& view, const RankView& rank) {
  int64_t since = rank.activity.since_realtime_ns;
  if (since == 0) return 0;
  // Each call leaves a time: of its launch, or of the first poll that saw it unreported.
  for (const RankView& other : view.ranks) {
    since = std::max({since, other.communicator->unreported_since_realtime_ns,
                      other.communicator->last_launch_realtime_ns});
  }
  return since;
}

const Calls& CommunicatorFacts::CallsOf(const RankView& rank) const {
  return calls[std::lower_bound(live.begin(), live.end(), &rank, std::less<>()) - live.begin()];
}

bool CommunicatorFacts::IsFurthestBehind(const RankView& rank) const {
  return Excess(CallsOf(rank), least).empty();
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

Ranks BehindUnseen(const CommunicatorFacts& facts) {
  return Where(facts.behind, [&facts](const RankView* rank) {
    return rank->activity.is_unknown() && !rank->is_stopped && !Contains(facts.owing, rank);
  });
}

bool IsOwedProven(const CommunicatorFacts& facts) {
  if (facts.owing.empty() || facts.is_mismatched) return false;
  return !facts.view->has_point_to_point ||
         (facts.are_all_live() &&
          std::all_of(facts.live.begin(), facts.live.end(), [&facts](const RankView* rank) {
            return rank->InFlightSince() != 0 || Contains(facts.owing, rank);
          }));
}

Calls CallsOwedBy(const CommunicatorFacts& facts, const Ranks& ranks) {
  Calls owed;
  for (const RankView* rank : ranks) {
    for (const auto& [kind, count] :
         Excess(facts.calls[facts.most], facts.abandoned.CountWithout(*rank))) {
      owed[kind] = std::max(owed[kind], count);
    }
  }
  return owed;
}

CommunicatorFacts GatherFacts(const CommunicatorView& view, int64_t now_ns) {
  CommunicatorFacts facts{};
  facts.view = &view;
  facts.abandoned = AbandonedCalls(view.ranks);
  facts.now_ns = now_ns;
  Ranks ended;
  for (const RankView& rank : view.ranks) {
    if (rank.state == RankView::State::kLive) {
      AddLive(rank, &facts);
    } else {
      ended.push_back(&rank);
    }
  }
  for (const RankView* rank : facts.live) {
    const CallsKnown known = AreCallsKnown(*rank->process, *rank->communicator);
    if (facts.calls_known == CallsKnown::kYes) facts.calls_known = known;
  }
  if (facts.calls_known == CallsKnown::kYes) {
    CompareCalls(&facts);
    CompareEnded(ended, &facts);
  }
  if (facts.calls_known == CallsKnown::kCaptured) {
    facts.replays = CompareReplays(facts.live);
    facts.work = CompareWork(view, view.hang_after_ns / 2, now_ns);
  }
  return facts;
}

bool AreLaunchesExchanges(const CommunicatorView& view) {
  if (view.nranks < 3) return false;
  const auto peers = static_cast<uint64_t>(view.nranks - 1);
  for (const uint64_t parts : {peers, peers + 1}) {
    const bool have_all =
        std::all_of(view.ranks.begin(), view.ranks.end(), [parts](const RankView& rank) {
          return AreCallsKnown(*rank.process, *rank.communicator) == CallsKnown::kYes &&
                 HasParts(rank, parts);
        });
    if (have_all) return true;
  }
  return false;
}

}  // namespace nccl_pulse
