#include "exporter/diagnosis/hang_verdict.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <optional>
#include <utility>

#include "exporter/diagnosis/abandoned_calls.h"
#include "exporter/diagnosis/being_made.h"
#include "exporter/diagnosis/call_mismatch.h"
#include "exporter/diagnosis/call_order.h"
#include "exporter/diagnosis/communicator_facts.h"
#include "exporter/diagnosis/exchange.h"
#include "exporter/diagnosis/launch_order.h"
#include "exporter/diagnosis/peer_waits.h"
#include "exporter/diagnosis/verdict_draft.h"

namespace nccl_pulse {

namespace {

// Work may be queued behind a long kernel for some time. So many times as long as makes a hang is a
// stall, whatever it waits for.
constexpr int64_t kQueuedFactor = 6;

// Judges one communicator whose ranks are known to wait, or did when they were last seen.
class Judge {
 public:
  explicit Judge(const CommunicatorFacts& facts)
      : facts_(facts), view_(*facts.view), draft_(facts), finding_(draft_.finding) {}

  // `since` of a waiting rank: when it last made progress.
  template <typename Since>
  Conclusion Decide(const Ranks& waiting, const Since& since) {
    draft_.SetWaiting(waiting, since);
    if (view_.is_mixed) {
      draft_.SayUnknown(HangDetail::kMixed);
    } else {
      DecideByRanks();
    }
    if (!is_queued_) return {std::move(finding_), std::nullopt, std::nullopt};
    Conclusion conclusion{std::nullopt, Queued(), std::nullopt};
    SayQueued();
    conclusion.hang = std::move(finding_);
    return conclusion;
  }

 private:
  // Ranks that have ended or do not run come first, except for what can be proven without them. A
  // rank that ended while it waited is not why the others wait.
  void DecideByRanks() {
    const bool can_compare = facts_.calls_known == CallsKnown::kYes;
    finding_.beside.ended_waiting = facts_.ended_waiting;
    std::optional<Mismatch> order;
    if (can_compare) order = CompareCallOrder(facts_);
    const bool is_mismatch_proven =
        order || (can_compare && facts_.is_mismatched && facts_.is_quiet);
    if (!facts_.failed.empty() && !is_mismatch_proven) return SayFailed();
    if (const Ranks gone = Without(facts_.gone, facts_.ended_waiting); !gone.empty()) {
      if (!facts_.is_mismatched) draft_.AddOwing();
      return draft_.Say(HangVerdict::kProcessGone, HangDetail::kNone, gone);
    }
    // A rank of which a thread stands in the driver is not stopped: its GPU is busy.
    if ((!facts_.work.idle.empty() || (facts_.work.stands() && !facts_.stopped.empty())) &&
        !AreReplaysTold()) {
      return SayWork();
    }
    const bool is_proven = is_mismatch_proven || (can_compare && IsOwedProven(facts_));
    // Nobody is held up by others whose only call may have failed, or been to its own rank.
    const bool is_wait_known =
        !std::all_of(finding_.waiting.begin(), finding_.waiting.end(),
                     [](const RankView* rank) { return MayHaveReturned(*rank); });
    if (!is_proven && is_wait_known && MayOweInExit(can_compare)) {
      return draft_.Say(HangVerdict::kRankNotCalled, HangDetail::kExiting, facts_.exiting);
    }
    std::set_union(facts_.stopped.begin(), facts_.stopped.end(), facts_.stopped_later.begin(),
                   facts_.stopped_later.end(), std::back_inserter(finding_.beside.stopped),
                   std::less<>());
    if (!is_proven &&
        std::any_of(facts_.stopped.begin(), facts_.stopped.end(),
                    [this](const RankView* rank) { return MayHoldUp(facts_, *rank); })) {
      return SayStopped(facts_.stopped);
    }
    if (const Ranks left = Without(facts_.finalized, facts_.ended_waiting);
        is_wait_known && !left.empty()) {
      return draft_.Say(HangVerdict::kRankNotCalled, HangDetail::kFinalized, left);
    }
    if (order) return draft_.SayMismatch(std::move(*order));
    if (can_compare) return DecideByCalls();
    // What stands behind a replay that another rank has not begun is not behind work of its own.
    if (facts_.replays.behind.empty() && IsBehindOwnWork(facts_)) {
      is_queued_ = true;
    } else if (facts_.calls_known == CallsKnown::kCaptured) {
      DecideByReplays();
    } else {
      draft_.SayUnknown(facts_.calls_known == CallsKnown::kOverflowed
                            ? HangDetail::kOverflowed
                            : HangDetail::kEventMaskChanged);
    }
  }

  // Stamps tell more than counters, where there are some and they tell anything.
  bool AreReplaysTold() const {
    const ReplayFacts& replays = facts_.replays;
    return replays.known == ReplaysKnown::kYes &&
           (!replays.behind.empty() || replays.are_all_within);
  }

  void DecideByReplays() {
    const ReplayFacts& replays = facts_.replays;
    if (!AreReplaysTold() && facts_.work.stands()) return SayWork();
    switch (replays.known) {
      case ReplaysKnown::kNotFollowed:
        return draft_.SayUnknown(HangDetail::kCaptured);
      case ReplaysKnown::kDiffer:
        return draft_.SayUnknown(HangDetail::kReplaysDiffer);
      case ReplaysKnown::kMayLeave:
        return draft_.SayUnknown(HangDetail::kReplaysMayLeave);
      case ReplaysKnown::kYes:
        break;
    }
    if (replays.behind.empty() && !replays.are_all_within) {
      return draft_.SayUnknown(HangDetail::kReplaysAlike);
    }
    const GraphPlace& place = replays.ahead->communicator->graph_place;
    finding_.replay.at = {place.graph, place.calls_before, place.calls_until, place.calls};
    if (!replays.behind.empty()) {
      finding_.replay.is_begun = !replays.is_not_begun;
      finding_.replay.is_first_stamp_head = place.has_head;
      finding_.not_begun_suspects = true;
      return draft_.Say(HangVerdict::kRankNotBegun, HangDetail::kReplay, replays.behind);
    }
    if (!facts_.are_all_seen() && view_.are_all_expected) return SayNotSeen();
    draft_.Say(HangVerdict::kNoProgress, HangDetail::kReplay, {});
  }

  void SayWork() {
    const WorkFacts& work = facts_.work;
    finding_.longest_pause_ns = work.longest_pause_ns;
    finding_.beside.unread = work.unread;
    draft_.Say(work.idle.empty() ? HangVerdict::kNoProgress : HangVerdict::kRankNotBegun,
               HangDetail::kWork, work.idle);
  }

  // What a GPU was given will never end.
  void SayFailed() {
    const Ranks first = FirstFailed(facts_.failed);
    std::set_difference(facts_.failed.begin(), facts_.failed.end(), first.begin(), first.end(),
                        std::back_inserter(finding_.beside.failed), std::less<>());
    draft_.Say(HangVerdict::kDriverError, HangDetail::kNone, first);
  }

  // Where calls cannot be compared, others may wait for one that a process in exit() will not make.
  bool MayOweInExit(bool can_compare) const {
    return !facts_.exiting.empty() && (!can_compare || view_.has_point_to_point);
  }

  // Of ranks that wait for their own GPUs a few that have not called are the ones that differ.
  void SayQueued() {
    const bool do_few_owe = IsOwedProven(facts_) && facts_.owing.size() < finding_.waiting.size();
    if (do_few_owe) {
      draft_.SayOwing();
    } else if (!SayAwaitedPeers()) {
      draft_.Say(HangVerdict::kNoProgress, HangDetail::kQueued, {});
    }
    finding_.is_queued = true;
  }

  void SayStopped(const Ranks& stopped) {
    finding_.beside.stopped.clear();
    draft_.Say(HangVerdict::kProcessStopped, HangDetail::kNone, stopped);
  }

  void DecideByCalls() {
    if (facts_.is_mismatched && facts_.is_quiet) return draft_.SayMismatch(CompareSides(facts_));
    if (IsBehindOwnWork(facts_) && AreOwedLaunched(facts_)) {
      is_queued_ = true;
      return;
    }
    if (facts_.is_mismatched) return draft_.SayUnknown(HangDetail::kStillCalling);
    if (!facts_.owing.empty()) return DecideOwing();
    finding_.owed.behind_unseen = BehindUnseen(facts_);
    if (!finding_.owed.behind_unseen.empty()) return draft_.SayBehindUnseen();
    const bool has_peers = view_.has_point_to_point;
    if (facts_.behind.empty() && facts_.is_quiet && !has_peers) {
      if (std::optional<Mismatch> order = CompareOrder(facts_)) {
        return draft_.SayMismatch(std::move(*order));
      }
    }
    // All ranks have made the call in which they wait.
    if (has_peers && IsPointToPointPossible(finding_.waiting)) return DecidePointToPoint();
    DecideLaunched();
  }

  QueuedFinding Queued() const {
    QueuedFinding queued;
    queued.since_realtime_ns = finding_.since_realtime_ns;
    queued.op = finding_.op;
    queued.ranks = finding_.waiting;
    queued.are_all_seen = finding_.are_all_seen;
    const RankView& first = *finding_.waiting.front();
    for (const auto& [op, calls] : AbandonedCallsOf(*first.communicator)) {
      if (facts_.abandoned.Of(first, op) == 0) queued.unreported_op = op;
    }
    queued.is_long = ElapsedNs(facts_.now_ns, finding_.since_realtime_ns) >=
                     kQueuedFactor * facts_.hang_after_ns;
    return queued;
  }

  void DecideOwing() {
    finding_.owed.ahead = facts_.live[facts_.most];
    if (!IsOwedProven(facts_)) {
      finding_.op = OnlyOperation(facts_.owed);
      draft_.AddOwing();
      return draft_.SayUnknown(HangDetail::kBesidePeers);
    }
    finding_.owed.behind_unseen = BehindUnseen(facts_);
    draft_.SayOwing();
  }

  // Says whether it is known who has not made the Send or Recv that others wait for, or that they do not make
  // it for each other.
  bool SayAwaitedPeers() {
    PeerWaits peers = FollowPeers(facts_);
    finding_.owed.peer_waits = std::move(peers.waits);
    if (!peers.awaited.empty()) {
      draft_.Say(HangVerdict::kRankNotCalled, HangDetail::kPeers, peers.awaited);
      return true;
    }
    if (!peers.circle.empty()) {
      Ranks suspects;
      for (const PeerWait& wait : peers.circle) {
        finding_.elsewhere.circle.push_back({&view_, wait.rank});
        suspects.push_back(wait.rank);
      }
      finding_.owed.peer_waits = std::move(peers.circle);
      std::sort(suspects.begin(), suspects.end(), std::less<>());
      draft_.Say(HangVerdict::kCircularWait, HangDetail::kPeers, suspects);
      return true;
    }
    const Ranks awaited = AwaitedInExchange(facts_);
    if (awaited.empty()) return false;
    draft_.Say(HangVerdict::kRankNotCalled, HangDetail::kExchange, awaited);
    return true;
  }

  void DecidePointToPoint() {
    // With two ranks, each Send of one is the other's Recv.
    const Ranks& live = facts_.live;
    if (view_.nranks == 2 && live.size() == 2) {
      for (const auto& [waits, other] :
           {std::pair(live[0], live[1]), std::pair(live[1], live[0])}) {
        const bool does_wait = waits->InFlightSince() != 0 ||
                               (Contains(facts_.inside, waits) && !MayHaveReturned(*waits));
        if (!does_wait || !other->activity.is_idle()) continue;
        for (const auto& [called, owed] : {std::pair("Send", "Recv"), std::pair("Recv", "Send")}) {
          if (waits->CallsOf(called) <= other->CallsOf(owed)) continue;
          finding_.op = called;
          finding_.owed.peer_op = owed;
          return draft_.Say(HangVerdict::kRankNotCalled, HangDetail::kPeer, {other});
        }
      }
    }
    if (SayAwaitedPeers()) return;
    if (const Ranks late = NotBegunInExchange(facts_); !late.empty()) {
      finding_.not_begun_suspects = true;
      return draft_.Say(HangVerdict::kRankNotBegun, HangDetail::kNone, late);
    }
    if (!facts_.are_all_seen() && view_.are_all_expected &&
        facts_.stuck.size() + facts_.inside.size() == live.size()) {
      return SayNotSeen();
    }
    finding_.beside.inside = Without(facts_.inside, finding_.waiting);
    for (const RankView* rank : live) {
      if (rank->activity.is_idle()) finding_.beside.idle.push_back(rank);
    }
    draft_.Say(HangVerdict::kPointToPoint, HangDetail::kNone, {});
  }

  void DecideLaunched() {
    if (const Ranks standing = RanksNotCompleted(facts_); !standing.empty()) {
      return draft_.Say(HangVerdict::kNoProgress, HangDetail::kNotCompleted, standing);
    }
    if (const Ranks inside = RanksInsideNccl(facts_, finding_.waiting); !inside.empty()) {
      return draft_.Say(HangVerdict::kRankNotLaunched, HangDetail::kNone, inside);
    }
    if (const Ranks late = RanksNotBegun(facts_); !late.empty()) {
      finding_.not_begun_suspects = true;
      return draft_.Say(HangVerdict::kRankNotBegun, HangDetail::kNone, late);
    }
    for (const RankView* rank : facts_.live) {
      if (rank->activity.oldest_launch == OldestLaunch::kNotBegun) {
        finding_.beside.not_begun.push_back(rank);
      }
    }
    // Its GPU works on, but the threads that serve the network do not.
    const bool is_last_resort =
        facts_.are_all_live() || facts_.stopped.size() == facts_.live.size();
    if (!facts_.stopped.empty() && is_last_resort) return SayStopped(facts_.stopped);
    if (!facts_.are_all_seen() && view_.are_all_expected) {
      return SayNotSeen();
    }
    draft_.Say(HangVerdict::kNoProgress, HangDetail::kNone, {});
  }

  void SayNotSeen() {
    finding_.not_seen.ranks = UnseenRanks(facts_, kMostUnseen);
    draft_.Say(HangVerdict::kRankNotSeen, HangDetail::kNone, {});
  }

  const CommunicatorFacts& facts_;
  const CommunicatorView& view_;
  VerdictDraft draft_;
  HangFinding& finding_;  // the draft's
  bool is_queued_ = false;
};

}  // namespace

Conclusion Conclude(const CommunicatorView& view, int64_t hang_after_ns, int64_t now_realtime_ns) {
  const CommunicatorFacts facts = GatherFacts(view, hang_after_ns, now_realtime_ns);
  Judge judge(facts);
  const Ranks& standing = facts.replays.standing;
  if (!facts.stuck.empty() || !standing.empty()) {
    Ranks waiting;
    std::set_union(facts.stuck.begin(), facts.stuck.end(), standing.begin(), standing.end(),
                   std::back_inserter(waiting), std::less<>());
    return judge.Decide(waiting, [&view](const RankView& rank) {
      const int64_t since = NoProgressSince(view, rank);
      return since != 0 ? since : rank.communicator->graph_moved_realtime_ns;
    });
  }
  if (!facts.halted.empty()) {
    return judge.Decide(facts.halted, HaltedSince);
  }
  if (facts.work.stands()) {
    return judge.Decide(facts.work.busy, [](const RankView& rank) {
      return rank.communicator->work.moved_realtime_ns;
    });
  }
  if (!facts.inside.empty()) {
    return judge.Decide(facts.inside,
                        [](const RankView& rank) { return rank.activity.since_realtime_ns; });
  }
  if (view.is_mixed) return {};
  if (std::optional<HangFinding> made = ConcludeBeingMade(facts)) {
    return {std::move(made), std::nullopt, std::nullopt};
  }
  return ConcludeUnreported(facts);
}

std::optional<HangFinding> ConcludeForEnded(const CommunicatorView& view, int64_t hang_after_ns,
                                            int64_t now_realtime_ns) {
  const CommunicatorFacts facts = GatherFacts(view, hang_after_ns, now_realtime_ns);
  if (facts.ended_waiting.empty()) return std::nullopt;
  Conclusion conclusion = Judge(facts).Decide(facts.ended_waiting, [](const RankView& rank) {
    return rank.communicator->last_launch_realtime_ns;
  });
  if (conclusion.hang) conclusion.hang->waiting.clear();
  return std::move(conclusion.hang);
}

namespace {

// The first connections of a large job take tens of seconds. NCCL gives up a connection that is refused
// within a minute or so (src/misc/socket.cc, 2.28).
constexpr int64_t kLongConnectNs = 300000000000;

// True if all ranks have been inside NCCL for longer than it takes to connect.
bool DoAllConnect(const CommunicatorFacts& facts, int64_t since_ns) {
  return facts.are_all_live() && ElapsedNs(facts.now_ns, since_ns) >= kLongConnectNs &&
         std::all_of(facts.live.begin(), facts.live.end(), [](const RankView* rank) {
           return rank->communicator->are_unreported_in_group;
         });
}

AheadFinding Ahead(const CommunicatorFacts& facts, const Ranks& behind) {
  return {facts.live[facts.most], behind, CallsOwedBy(facts, behind)};
}

}  // namespace

Conclusion ConcludeUnreported(const CommunicatorFacts& facts) {
  if (facts.unreported.empty() || facts.calls_known != CallsKnown::kYes) return {};
  // Those that nobody is ahead of are in their last call, or have finished it.
  Ranks waiting;
  for (const RankView* rank : facts.live) {
    if (!facts.HasCalledAll(*rank)) continue;
    if (!Contains(facts.unreported, rank)) return {};  // it goes on, or is idle
    waiting.push_back(rank);
  }
  VerdictDraft draft(facts);
  HangFinding& finding = draft.finding;
  draft.SetWaiting(waiting,
                   [&facts](const RankView& rank) { return UnreportedSince(*facts.view, rank); });
  finding.is_unreported = true;
  finding.beside.ended_waiting = facts.ended_waiting;
  finding.is_waiting_known = WaitsForAll(finding.op);
  finding.owed.ahead = facts.live[facts.most];
  if (facts.is_mismatched) {
    if (facts.unreported.size() != facts.live.size()) return {};
    finding.waiting = facts.live;
    draft.SayMismatch(CompareSides(facts));
    return {std::move(finding), std::nullopt, std::nullopt};
  }
  const Ranks gone = Without(facts.ended_owing, facts.finalized);
  const Ranks finalized = Without(facts.ended_owing, facts.gone);
  Ranks stopped;
  for (const RankView* rank : facts.behind) {
    if (rank->activity.is_in_flight()) return {};  // it is on its way
    if (rank->is_stopped) stopped.push_back(rank);
    // It made a call a moment ago.
    if (rank->activity.reason == UnknownReason::kLaunchNotReported &&
        !Contains(facts.unreported, rank)) {
      return {};
    }
  }
  finding.owed.behind_unseen = BehindUnseen(facts);
  if (!gone.empty()) {
    draft.AddOwing();
    draft.Say(HangVerdict::kProcessGone, HangDetail::kNone, gone);
  } else if (!facts.owing.empty()) {
    if (MayAllHaveLeft(facts, facts.owing)) {
      return {std::nullopt, std::nullopt, Ahead(facts, facts.owing)};
    }
    finding.beside.stopped = stopped;
    draft.SayOwing();
  } else if (!stopped.empty()) {
    draft.Say(HangVerdict::kProcessStopped, HangDetail::kNone, stopped);
  } else if (!finalized.empty()) {
    draft.Say(HangVerdict::kRankNotCalled, HangDetail::kFinalized, finalized);
  } else if (!finding.owed.behind_unseen.empty()) {
    if (MayAllHaveLeft(facts, facts.behind)) {
      return {std::nullopt, std::nullopt, Ahead(facts, facts.behind)};
    }
    draft.SayBehindUnseen();
  } else if (DoAllConnect(facts, finding.since_realtime_ns)) {
    draft.Say(HangVerdict::kNoProgress, HangDetail::kInsideNccl, {});
  } else {
    return {};  // all have called the same: they may just have nothing to do
  }
  return {std::move(finding), std::nullopt, std::nullopt};
}

}  // namespace nccl_pulse
