#include "exporter/diagnosis/replay_facts.h"

#include <algorithm>
#include <map>
#include <utility>

#include "exporter/diagnosis/call_counts.h"

namespace nccl_pulse {
namespace {

bool IsFollowed(const RankView& rank) {
  const UnknownReason reason = rank.activity.reason;
  return rank.communicator->graph_place.followed != 0 &&
         reason != UnknownReason::kPollerNotStarted && reason != UnknownReason::kPollerStands;
}

Calls CapturedCallsOf(const CommunicatorSnapshot& communicator) {
  Calls calls;
  for (const CallCountSnapshot& call : communicator.calls) {
    if (call.captured) calls[{call.op, call.size_class}] += call.calls;
  }
  return calls;
}

bool MayLeave(const Calls& captured) {
  return std::any_of(captured.begin(), captured.end(),
                     [](const auto& call) { return !WaitsForAll(call.first.first); });
}

bool AreCapturedAlike(const RankView& a, const RankView& b) {
  const GraphPlace& one = a.communicator->graph_place;
  const GraphPlace& other = b.communicator->graph_place;
  return one.captures == other.captures && one.followed == other.followed &&
         one.captures < GraphPlace::kMost;
}

// How far a rank has come.
using Progress = std::pair<uint64_t, uint32_t>;
Progress ProgressOf(const RankView& rank) {
  return {rank.communicator->graph_replays, rank.communicator->graph_place.passed};
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
    } else if (calls != captured || !AreCapturedAlike(*rank, *live.front())) {
      return ReplaysKnown::kDiffer;
    }
  }
  return MayLeave(captured) ? ReplaysKnown::kMayLeave : ReplaysKnown::kYes;
}

// Not if ranks have begun as many replays, and the last one of another graph.
bool AreInOneOrder(const Ranks& live) {
  std::map<uint64_t, std::pair<uint32_t, uint32_t>> graphs;
  return std::all_of(live.begin(), live.end(), [&graphs](const RankView* rank) {
    const GraphPlace& place = rank->communicator->graph_place;
    const std::pair graph(place.graph, place.stamps);
    return graphs.try_emplace(rank->communicator->graph_replays, graph).first->second == graph;
  });
}

// Beside the graphs a rank that is behind has called no more than any that is ahead.
bool HasCalledLess(const Ranks& behind, const Ranks& ahead) {
  Calls least = CollectiveCalls(*ahead.front()->communicator);
  for (const RankView* rank : ahead) least = Common(least, CollectiveCalls(*rank->communicator));
  return std::all_of(behind.begin(), behind.end(), [&least](const RankView* rank) {
    return Excess(CollectiveCalls(*rank->communicator), least).empty();
  });
}

bool IsAnyWithin(const Ranks& ranks) {
  for (const RankView* rank : ranks) {
    if (rank->activity.is_in_replay) return true;
  }
  return false;
}

}  // namespace

ReplayFacts CompareReplays(const Ranks& live, int64_t hang_after_ns, int64_t now_ns) {
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
    facts.are_all_within = std::all_of(
        live.begin(), live.end(), [](const RankView* rank) { return rank->activity.is_in_replay; });
    return facts;
  }
  facts.is_not_begun = last.communicator->graph_replays < first.communicator->graph_replays;
  // Who has ended a replay between two stamps has ended collectives that all ranks were in: then the
  // count of who seems not to have begun it is not right.
  if (facts.is_not_begun && first.communicator->graph_place.stamps > 1 && !IsAnyWithin(ahead)) {
    facts.behind.clear();
    return facts;
  }
  for (const RankView* rank : ahead) {
    // A count alone does not tell: it can read one less until the next replay. A graph of one stamp
    // is never seen in flight; who waits in it is noticed by a launch behind it.
    if (!rank->activity.is_in_flight()) continue;
    const int64_t moved_ns = rank->communicator->graph_moved_realtime_ns;
    if (moved_ns != 0 && ElapsedNs(now_ns, moved_ns) >= hang_after_ns) {
      facts.standing.push_back(rank);
    }
  }
  return facts;
}

}  // namespace nccl_pulse
