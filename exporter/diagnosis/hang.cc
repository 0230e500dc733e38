#include "exporter/diagnosis/hang.h"

#include <algorithm>
#include <utility>

#include "exporter/diagnosis/being_made.h"
#include "exporter/diagnosis/blocked_elsewhere.h"
#include "exporter/diagnosis/hang_verdict.h"
#include "exporter/diagnosis/hang_words.h"
#include "exporter/diagnosis/rank_words.h"
#include "exporter/diagnosis/usual_wait.h"

namespace nccl_pulse {
namespace {

std::vector<int32_t> RankNumbers(const Ranks& ranks) {
  std::vector<int32_t> numbers;
  numbers.reserve(ranks.size());
  for (const RankView* rank : ranks) numbers.push_back(rank->rank());
  return numbers;
}

Situation SituationOf(const HangFinding& finding) {
  if (finding.detail == HangDetail::kFinalized) return Situation::kFinalized;
  if (finding.detail == HangDetail::kBeingMade) return Situation::kBeingMade;
  if (finding.verdict == HangVerdict::kRankNotCalled && finding.suspects.size() == 1 &&
      IsExiting(*finding.suspects.front())) {
    return Situation::kExiting;
  }
  if (finding.is_queued) return Situation::kQueued;
  if (finding.detail == HangDetail::kInsideNccl) return Situation::kInsideNccl;
  if (finding.detail == HangDetail::kWork) return Situation::kInGraphs;
  return finding.replay.at.graph != 0 ? Situation::kInReplay : Situation::kPlain;
}

Hang ToHang(const HangFinding& finding) {
  Hang hang;
  hang.verdict = finding.verdict;
  hang.since_realtime_ns = finding.since_realtime_ns;
  hang.op = finding.op;
  hang.suspects = finding.verdict == HangVerdict::kRankNotSeen ? finding.not_seen.ranks
                                                               : RankNumbers(finding.suspects);
  hang.waiting = RankNumbers(finding.waiting);
  hang.text = HangWords(finding);
  hang.longest_wait_before_ns = finding.longest_wait_before_ns;
  hang.is_usual = finding.is_usual;
  for (const auto& [view, rank] : finding.elsewhere.circle) {
    hang.circle.push_back({view->comm_id, rank->rank()});
  }
  hang.replay = finding.replay.at;
  for (const CallSide& side : finding.mismatch.sides) hang.sides.push_back(RankNumbers(side.ranks));
  if (finding.elsewhere.is_acquitted) {
    hang.verdict = HangVerdict::kUnknown;
    // A rank that has not called does not wait here. It may wait elsewhere.
    if (finding.not_begun_suspects) {
      hang.waiting.insert(hang.waiting.end(), hang.suspects.begin(), hang.suspects.end());
      std::sort(hang.waiting.begin(), hang.waiting.end());
    }
    hang.suspects.clear();
  }
  hang.situation = SituationOf(finding);
  if (!finding.not_seen.absent.empty()) hang.absent_in = finding.not_seen.absent_in;
  if (hang.verdict == HangVerdict::kRankNotCalled && finding.detail == HangDetail::kOwes &&
      finding.owed.calls.size() == 1) {
    hang.missing_call = NumberedCallWords(finding.owed.calls, finding.owed.before);
  }
  if (finding.detail == HangDetail::kPeer) hang.missing_call = finding.owed.peer_op;
  if (finding.detail == HangDetail::kPeers) hang.missing_call = PeerCallWords(finding);
  const Ranks& first = finding.not_seen.absent.empty() ? finding.suspects : finding.not_seen.absent;
  const RankView* named = hang.suspects.empty() || first.empty() ? nullptr : first.front();
  hang.first_step = FirstStep(hang.verdict, hang.situation, named ? named->process : nullptr,
                              named ? named->communicator : nullptr);
  return hang;
}

Queued ToQueued(const QueuedFinding& queued) {
  return {queued.since_realtime_ns, queued.op, RankNumbers(queued.ranks), QueuedWords(queued)};
}

// After a while; or when others already wait for one of the ranks, and a few that have not called here
// differ from it: what their GPUs work on may wait for these. Not what stands behind NCCL's own work:
// then the hang is there.
bool IsQueuedHang(const RanksOfProcesses& ranks, std::size_t here,
                  const std::vector<std::optional<HangFinding>>& findings,
                  const HangFinding& finding) {
  const bool is_waited_for =
      !finding.suspects.empty() &&
      std::any_of(findings.begin(), findings.end(), [&](const auto& other) {
        return other &&
               (other->verdict == HangVerdict::kRankNotBegun ||
                other->verdict == HangVerdict::kRankNotCalled) &&
               std::any_of(
                   other->suspects.begin(), other->suspects.end(), [&](const auto* suspect) {
                     return std::any_of(
                         finding.queued.ranks.begin(), finding.queued.ranks.end(),
                         [suspect](const auto* rank) { return rank->process == suspect->process; });
                   });
      });
  return (finding.queued.is_long || is_waited_for) &&
         !AreBehindNccl(ranks, here, finding.queued.ranks);
}

}  // namespace

std::vector<WaitsOfCommunicator> FindHangs(const std::vector<CommunicatorView>& views,
                                           int64_t hang_after_ns, int64_t now_realtime_ns) {
  std::vector<WaitsOfCommunicator> waits(views.size());
  std::vector<std::optional<HangFinding>> findings;
  const RanksOfProcesses ranks(views);
  findings.reserve(views.size());
  std::vector<std::pair<std::size_t, HangFinding>> queued;
  for (std::size_t i = 0; i < views.size(); ++i) {
    Conclusion conclusion = Conclude(views[i], hang_after_ns, now_realtime_ns);
    if (conclusion.ahead) waits[i].note = AheadWords(*conclusion.ahead);
    if (conclusion.queued) {
      conclusion.hang->queued = std::move(*conclusion.queued);
      queued.push_back({i, std::move(*conclusion.hang)});
      conclusion.hang.reset();
    }
    findings.push_back(std::move(conclusion.hang));
    FindAbsent(views, ranks, i, &findings.back());
  }
  for (auto& [i, finding] : queued) {
    finding.queued.unseen_elsewhere = UnseenElsewhere(views, ranks, i, finding.queued.ranks);
    if (IsQueuedHang(ranks, i, findings, finding)) {
      findings[i] = std::move(finding);
    } else {
      waits[i].queued = ToQueued(finding.queued);
    }
  }
  DropWhatMoves(views, ranks, hang_after_ns, now_realtime_ns, &findings);
  FollowWaits(views, ranks, hang_after_ns, now_realtime_ns, &findings);
  for (std::optional<HangFinding>& finding : findings) {
    if (finding) CompareWithPast(now_realtime_ns, &*finding);
  }
  FollowUsualWaits(&findings);
  for (std::size_t i = 0; i < views.size(); ++i) {
    if (findings[i]) waits[i].hang = ToHang(*findings[i]);
  }
  return waits;
}

}  // namespace nccl_pulse
