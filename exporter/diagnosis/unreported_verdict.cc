#include "exporter/diagnosis/unreported_verdict.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "exporter/diagnosis/hang_evidence.h"
#include "exporter/diagnosis/verdict_draft.h"

namespace nccl_pulse {
namespace {

// The ranks that have ended without having called what others have.
Ranks Owing(const CommunicatorFacts& facts, const Ranks& ranks) {
  Ranks owing;
  std::copy_if(
      ranks.begin(), ranks.end(), std::back_inserter(owing), [&facts](const RankView* rank) {
        return !Excess(facts.calls[facts.most], facts.abandoned.CountWithout(*rank)).empty();
      });
  return owing;
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
  finding.is_waiting_known = WaitsForAll(finding.op);
  finding.ahead = facts.live[facts.most];
  if (facts.is_mismatched) {
    if (facts.unreported.size() != facts.live.size()) return {};
    finding.waiting = facts.live;
    draft.SayMismatch(CompareSides(facts));
    return {std::move(finding), std::nullopt, std::nullopt};
  }
  const Ranks gone = Owing(facts, facts.gone);
  const Ranks finalized = Owing(facts, facts.finalized);
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
  finding.behind_unseen = BehindUnseen(facts);
  if (!gone.empty()) {
    draft.AddOwing();
    draft.Say(HangVerdict::kProcessGone, HangDetail::kNone, gone);
  } else if (!facts.owing.empty()) {
    if (MayAllHaveLeft(facts, facts.owing)) {
      return {std::nullopt, std::nullopt, Ahead(facts, facts.owing)};
    }
    finding.also_stopped = stopped;
    draft.SayOwing();
  } else if (!stopped.empty()) {
    draft.Say(HangVerdict::kProcessStopped, HangDetail::kNone, stopped);
  } else if (!finalized.empty()) {
    draft.Say(HangVerdict::kRankNotCalled, HangDetail::kFinalized, finalized);
  } else if (!finding.behind_unseen.empty()) {
    if (MayAllHaveLeft(facts, facts.behind)) {
      return {std::nullopt, std::nullopt, Ahead(facts, facts.behind)};
    }
    draft.SayBehindUnseen();
  } else {
    return {};  // all have called the same: they may just have nothing to do
  }
  return {std::move(finding), std::nullopt, std::nullopt};
}

}  // namespace nccl_pulse
