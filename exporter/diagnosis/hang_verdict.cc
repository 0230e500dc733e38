#include "exporter/diagnosis/hang_verdict.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_join.h"
#include "exporter/diagnosis/call_mismatch.h"
#include "exporter/diagnosis/exchange.h"
#include "exporter/diagnosis/launch_order.h"

namespace nccl_pulse {
namespace {

constexpr std::size_t kMostUnseen = 8;

// One communicator whose ranks are known to wait, or were when they were last seen to.
class Judge {
 public:
  explicit Judge(const CommunicatorFacts& facts) : facts_(facts), view_(*facts.view) {
    finding_.view = facts.view;
    finding_.are_all_seen = facts.are_all_seen();
  }

  // `since` of a waiting rank: when it made progress last.
  template <typename Since>
  Conclusion Decide(const Ranks& waiting, const Since& since) {
    finding_.waiting = waiting;
    finding_.since_realtime_ns = INT64_MAX;
    for (const RankView* rank : waiting) {
      finding_.since_realtime_ns = std::min(finding_.since_realtime_ns, since(*rank));
    }
    finding_.op = LastCalled();
    DecideByRanks();
    if (is_queued_) return {std::nullopt, Queued(), std::nullopt};
    return {std::move(finding_), std::nullopt, std::nullopt};
  }

  // No launch is known to be in flight, but calls stand whose launches are not reported.
  Conclusion DecideUnreported();

 private:
  // What all waiting ranks called last, when that is one operation.
  std::string LastCalled() const {
    std::set<std::string> names;
    for (const RankView* rank : finding_.waiting) names.insert(rank->communicator->last_call_op);
    if (names.size() == 1 && !names.begin()->empty()) return *names.begin();
    std::set<std::string> all;
    for (const RankView* rank : finding_.waiting) {
      for (const auto& call : rank->communicator->calls) all.insert(call.op);
    }
    return all.size() == 1 ? *all.begin() : "";
  }

  void Say(HangVerdict verdict, HangDetail detail, const Ranks& suspects) {
    finding_.verdict = verdict;
    finding_.detail = detail;
    finding_.suspects = suspects;
    // Whom the others wait for does not wait.
    if (verdict == HangVerdict::kMismatched) return;
    Ranks& waiting = finding_.waiting;
    waiting.erase(
        std::remove_if(waiting.begin(), waiting.end(),
                       [&suspects](const RankView* rank) { return Contains(suspects, rank); }),
        waiting.end());
  }
  void SayUnknown(HangDetail detail) { Say(HangVerdict::kUnknown, detail, {}); }

  // Ranks that have ended or do not run come first, but for what is proven without them.
  void DecideByRanks() {
    const bool can_compare = facts_.calls_known == CallsKnown::kYes;
    if (!facts_.gone.empty()) {
      if (!facts_.is_mismatched) AddOwed(&finding_.also_owing);
      return Say(HangVerdict::kProcessGone, HangDetail::kNone, facts_.gone);
    }
    const bool is_proven = can_compare && (facts_.is_mismatched ? facts_.is_quiet : IsOwedProven());
    finding_.also_stopped = facts_.stopped;
    if (!is_proven && std::any_of(facts_.stopped.begin(), facts_.stopped.end(),
                                  [this](const RankView* rank) { return MayHoldUp(*rank); })) {
      return SayStopped(facts_.stopped);
    }
    if (!facts_.finalized.empty()) {
      return Say(HangVerdict::kRankNotCalled, HangDetail::kFinalized, facts_.finalized);
    }
    if (can_compare) return DecideByCalls();
    if (IsBehindOwnWork()) {
      is_queued_ = true;
    } else if (facts_.calls_known == CallsKnown::kCaptured) {
      SayUnknown(HangDetail::kCaptured);
    } else {
      SayUnknown(facts_.calls_known == CallsKnown::kOverflowed ? HangDetail::kOverflowed
                                                               : HangDetail::kEventMaskChanged);
    }
  }

  // Of a stopped one. Not if it has called and launched all that the others have, and then was
  // stopped: by a debugger, say, that is to show where it waits.
  bool MayHoldUp(const RankView& rank) const {
    return facts_.calls_known != CallsKnown::kYes || view_.has_point_to_point ||
           !facts_.HasCalledAll(rank) ||
           std::any_of(facts_.live.begin(), facts_.live.end(), [&rank](const RankView* other) {
             return other->communicator->launches > rank.communicator->launches;
           });
  }

  void SayStopped(const Ranks& stopped) {
    finding_.also_stopped.clear();
    Say(HangVerdict::kProcessStopped, HangDetail::kNone, stopped);
  }

  void DecideByCalls() {
    if (facts_.is_mismatched && facts_.is_quiet) return SayMismatch(CompareSides(facts_));
    if (IsBehindOwnWork() && AreOwedLaunched()) {
      is_queued_ = true;
      return;
    }
    if (facts_.is_mismatched) return SayUnknown(HangDetail::kStillCalling);
    if (!facts_.owing.empty()) return DecideOwing();
    finding_.behind_unseen = BehindUnseen();
    if (!finding_.behind_unseen.empty()) return DecideBehindUnseen();
    const bool has_peers = view_.has_point_to_point;
    if (facts_.behind.empty() && facts_.is_quiet && !has_peers) {
      if (std::optional<Mismatch> order = CompareOrder(facts_)) {
        return SayMismatch(std::move(*order));
      }
    }
    // All have called what they wait in.
    if (has_peers && IsPointToPointPossible()) return DecidePointToPoint();
    DecideLaunched();
  }

  // Every launch of the ranks here is known not to have begun: none holds up another, or is held
  // up.
  bool IsBehindOwnWork() const {
    bool any = false;
    for (const RankView* rank : facts_.live) {
      if (rank->activity.is_idle()) continue;
      if (rank->activity.oldest_launch != OldestLaunch::kNotBegun) return false;
      any = true;
    }
    return any;
  }

  // What idle ranks have not called is all among the launches that have not begun. A call that is
  // not reported may have begun before them.
  bool AreOwedLaunched() const {
    const uint64_t owed = Total(facts_.owed);
    return std::all_of(facts_.live.begin(), facts_.live.end(), [owed](const RankView* rank) {
      const CommunicatorSnapshot& communicator = *rank->communicator;
      return !rank->activity.is_in_flight() ||
             communicator.launches - communicator.launches_completed >= owed;
    });
  }

  QueuedFinding Queued() const {
    QueuedFinding queued;
    queued.since_realtime_ns = finding_.since_realtime_ns;
    queued.op = finding_.op;
    queued.ranks = finding_.waiting;
    queued.are_all_seen = finding_.are_all_seen;
    return queued;
  }

  void AddOwed(Ranks* ranks) {
    *ranks = facts_.owing;
    finding_.calls = facts_.owed;
  }

  Ranks BehindUnseen() const {
    Ranks unseen;
    for (const RankView* rank : facts_.behind) {
      if (rank->activity.is_unknown() && !rank->is_stopped) unseen.push_back(rank);
    }
    return unseen;
  }

  // Behind a Send or Recv in flight a rank may wait for another one than the one that owes a
  // collective, unless nobody else is left.
  bool IsOwedProven() const {
    if (facts_.owing.empty() || facts_.is_mismatched) return false;
    return !view_.has_point_to_point ||
           (facts_.are_all_seen() &&
            std::all_of(facts_.live.begin(), facts_.live.end(), [this](const RankView* rank) {
              return rank->InFlightSince() != 0 || Contains(facts_.owing, rank);
            }));
  }

  void DecideOwing() {
    finding_.op = OnlyOperation(facts_.owed);
    finding_.ahead = facts_.live[facts_.most];
    if (!IsOwedProven()) {
      AddOwed(&finding_.also_owing);
      return SayUnknown(HangDetail::kBesidePeers);
    }
    finding_.calls = facts_.owed;
    finding_.behind_unseen = BehindUnseen();
    Say(HangVerdict::kRankNotCalled, HangDetail::kOwes, facts_.owing);
  }

  // A rank whose own calls stand unreported is named only if no call of another rank can be what it
  // waits for.
  Ranks NamedByCounts() const {
    Ranks named;
    if (!facts_.are_all_seen() || view_.has_point_to_point) return named;
    for (const RankView* rank : facts_.behind) {
      if (Contains(facts_.unreported, rank) && facts_.IsFurthestBehind(*rank)) {
        named.push_back(rank);
      }
    }
    return named;
  }

  void SetCallsOwedBy(const Ranks& ranks) {
    for (const RankView* rank : ranks) {
      for (const auto& [kind, count] : Excess(facts_.calls[facts_.most], facts_.CallsOf(*rank))) {
        finding_.calls[kind] = std::max(finding_.calls[kind], count);
      }
    }
  }

  void DecideBehindUnseen() {
    finding_.ahead = facts_.live[facts_.most];
    const Ranks named = NamedByCounts();
    if (named.empty()) return SayUnknown(HangDetail::kBehindUnseen);
    Ranks& unseen = finding_.behind_unseen;
    unseen.erase(std::remove_if(unseen.begin(), unseen.end(),
                                [&named](const RankView* rank) { return Contains(named, rank); }),
                 unseen.end());
    SetCallsOwedBy(named);
    finding_.op = OnlyOperation(finding_.calls);
    Say(HangVerdict::kRankNotCalled, HangDetail::kOwes, named);
  }

  // One rank alone has called more, in operations that a rank may leave before the others come: it
  // may be the root, and have left.
  bool MayAllHaveLeft(const Ranks& behind) const {
    Calls least = facts_.CallsOf(*behind.front());
    for (const RankView* rank : behind) least = Common(least, facts_.CallsOf(*rank));
    const auto ahead =
        std::count_if(facts_.calls.begin(), facts_.calls.end(),
                      [&least](const Calls& calls) { return !Excess(calls, least).empty(); });
    if (ahead != 1) return false;
    for (const RankView* rank : behind) {
      for (const auto& [kind, count] : Excess(facts_.calls[facts_.most], facts_.CallsOf(*rank))) {
        if (WaitsForAll(kind.first)) return false;
      }
    }
    return true;
  }

  AheadFinding Ahead(const Ranks& behind) {
    SetCallsOwedBy(behind);
    return {facts_.live[facts_.most], behind, std::move(finding_.calls)};
  }

  void SayMismatch(Mismatch mismatch) {
    finding_.op = absl::StrJoin(mismatch.operations, ",");
    finding_.sides = std::move(mismatch.sides);
    Say(HangVerdict::kMismatched, mismatch.detail, facts_.live);
  }

  bool IsPointToPointPossible() const {
    return !std::all_of(finding_.waiting.begin(), finding_.waiting.end(), [](const auto* rank) {
      return IsCollective(rank->communicator->last_call_op);
    });
  }

  void DecidePointToPoint() {
    // Of two ranks, one's Send is the other's Recv.
    const Ranks& live = facts_.live;
    if (view_.nranks == 2 && live.size() == 2) {
      for (const auto& [waits, other] :
           {std::pair(live[0], live[1]), std::pair(live[1], live[0])}) {
        if (waits->InFlightSince() == 0 || !other->activity.is_idle()) continue;
        for (const auto& [called, owed] : {std::pair("Send", "Recv"), std::pair("Recv", "Send")}) {
          if (waits->CallsOf(called) <= other->CallsOf(owed)) continue;
          finding_.op = called;
          finding_.peer_op = owed;
          return Say(HangVerdict::kRankNotCalled, HangDetail::kPeer, {other});
        }
      }
    }
    if (const Ranks awaited = AwaitedInExchange(facts_); !awaited.empty()) {
      return Say(HangVerdict::kRankNotCalled, HangDetail::kExchange, awaited);
    }
    if (const Ranks late = NotBegunInExchange(facts_); !late.empty()) {
      finding_.not_begun_suspects = true;
      return Say(HangVerdict::kRankNotBegun, HangDetail::kNone, late);
    }
    if (!facts_.are_all_seen() && view_.are_all_expected && facts_.stuck.size() == live.size()) {
      return DecideNotSeen();
    }
    for (const RankView* rank : live) {
      if (rank->activity.is_idle()) finding_.idle.push_back(rank);
    }
    Say(HangVerdict::kPointToPoint, HangDetail::kNone, {});
  }

  void DecideLaunched() {
    if (const Ranks inside = RanksInsideNccl(facts_, finding_.waiting); !inside.empty()) {
      return Say(HangVerdict::kRankNotLaunched, HangDetail::kNone, inside);
    }
    if (const Ranks late = RanksNotBegun(facts_); !late.empty()) {
      finding_.not_begun_suspects = true;
      return Say(HangVerdict::kRankNotBegun, HangDetail::kNone, late);
    }
    for (const RankView* rank : facts_.live) {
      if (rank->activity.oldest_launch == OldestLaunch::kNotBegun) {
        finding_.not_begun.push_back(rank);
      }
    }
    // Its GPU works on, but not the threads that serve the network.
    const bool is_last_resort =
        facts_.are_all_seen() || facts_.stopped.size() == facts_.live.size();
    if (!facts_.stopped.empty() && is_last_resort) return SayStopped(facts_.stopped);
    if (!facts_.are_all_seen() && view_.are_all_expected) return DecideNotSeen();
    Say(HangVerdict::kNoProgress, HangDetail::kNone, {});
  }

  void DecideNotSeen() {
    std::vector<int32_t>& unseen = finding_.unseen_ranks;
    std::size_t at = 0;
    const Ranks& live = facts_.live;
    for (int32_t rank = 0; rank < view_.nranks && unseen.size() < kMostUnseen; ++rank) {
      while (at < live.size() && live[at]->rank() < rank) ++at;
      if (at == live.size() || live[at]->rank() != rank) unseen.push_back(rank);
    }
    Say(HangVerdict::kRankNotSeen, HangDetail::kNone, {});
  }

  const CommunicatorFacts& facts_;
  const CommunicatorView& view_;
  HangFinding finding_;
  bool is_queued_ = false;
};

Conclusion Judge::DecideUnreported() {
  if (facts_.unreported.empty() || facts_.calls_known != CallsKnown::kYes) return {};
  // Those of them that nobody is ahead of stand in their last call, or have finished it.
  for (const RankView* rank : facts_.live) {
    if (!facts_.HasCalledAll(*rank)) continue;
    if (!Contains(facts_.unreported, rank)) return {};  // it goes on, or is idle
    finding_.waiting.push_back(rank);
  }
  finding_.since_realtime_ns = INT64_MAX;
  for (const RankView* rank : finding_.waiting) {
    finding_.since_realtime_ns =
        std::min(finding_.since_realtime_ns, UnreportedSince(view_, *rank));
  }
  finding_.op = LastCalled();
  finding_.is_unreported = true;
  finding_.is_waiting_known = WaitsForAll(finding_.op);
  finding_.ahead = facts_.live[facts_.most];
  if (facts_.is_mismatched) {
    if (facts_.unreported.size() != facts_.live.size()) return {};
    finding_.waiting = facts_.live;
    SayMismatch(CompareSides(facts_));
    return {std::move(finding_), std::nullopt, std::nullopt};
  }
  const auto owes = [this](const RankView* rank) {
    return !Excess(facts_.calls[facts_.most], CollectiveCalls(*rank->communicator)).empty();
  };
  Ranks gone;
  std::copy_if(facts_.gone.begin(), facts_.gone.end(), std::back_inserter(gone), owes);
  Ranks finalized;
  std::copy_if(facts_.finalized.begin(), facts_.finalized.end(), std::back_inserter(finalized),
               owes);
  Ranks stopped;
  for (const RankView* rank : facts_.behind) {
    if (rank->activity.is_in_flight()) return {};  // it is on its way
    if (rank->is_stopped) stopped.push_back(rank);
    // It has called something a moment ago.
    if (rank->activity.reason == UnknownReason::kLaunchNotReported &&
        !Contains(facts_.unreported, rank)) {
      return {};
    }
  }
  finding_.behind_unseen = BehindUnseen();
  if (!gone.empty()) {
    AddOwed(&finding_.also_owing);
    Say(HangVerdict::kProcessGone, HangDetail::kNone, gone);
  } else if (!facts_.owing.empty()) {
    if (MayAllHaveLeft(facts_.owing)) return {std::nullopt, std::nullopt, Ahead(facts_.owing)};
    finding_.calls = facts_.owed;
    finding_.also_stopped = stopped;
    finding_.op = OnlyOperation(facts_.owed);
    Say(HangVerdict::kRankNotCalled, HangDetail::kOwes, facts_.owing);
  } else if (!stopped.empty()) {
    Say(HangVerdict::kProcessStopped, HangDetail::kNone, stopped);
  } else if (!finalized.empty()) {
    Say(HangVerdict::kRankNotCalled, HangDetail::kFinalized, finalized);
  } else if (!finding_.behind_unseen.empty()) {
    if (MayAllHaveLeft(facts_.behind)) return {std::nullopt, std::nullopt, Ahead(facts_.behind)};
    DecideBehindUnseen();
  } else {
    return {};  // all have called the same: they may simply have nothing to do
  }
  return {std::move(finding_), std::nullopt, std::nullopt};
}

}  // namespace

Conclusion Conclude(const CommunicatorView& view, int64_t hang_after_ns, int64_t now_realtime_ns) {
  const CommunicatorFacts facts = GatherFacts(view, hang_after_ns, now_realtime_ns);
  Judge judge(facts);
  if (!facts.stuck.empty()) return judge.Decide(facts.stuck, NoProgressSince);
  if (!facts.halted.empty()) {
    return judge.Decide(facts.halted, [](const RankView& rank) {
      return std::max(SeenInFlightSince(*rank.communicator),
                      rank.communicator->last_completion_realtime_ns);
    });
  }
  return judge.DecideUnreported();
}

}  // namespace nccl_pulse
