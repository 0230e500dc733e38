#include "exporter/diagnosis/usual_wait.h"

#include <algorithm>

namespace nccl_pulse {
namespace {

// Whether a hang with this verdict can end well at all.
bool CanEnd(const HangFinding& finding) {
  if (!finding.ended_waiting.empty()) return false;
  if (std::any_of(finding.suspects.begin(), finding.suspects.end(), [](const RankView* suspect) {
        return suspect->state != RankView::State::kLive;
      })) {
    return false;
  }
  switch (finding.verdict) {
    case HangVerdict::kRankNotCalled:
      return std::none_of(finding.suspects.begin(), finding.suspects.end(),
                          [](const RankView* rank) { return IsExiting(*rank); });
    case HangVerdict::kRankNotLaunched:
    case HangVerdict::kRankNotBegun:
    case HangVerdict::kBlockedElsewhere:
    case HangVerdict::kCircularWait:
    case HangVerdict::kRankNotSeen:
    case HangVerdict::kPointToPoint:
    case HangVerdict::kNoProgress:
    case HangVerdict::kUnknown:
      return true;
    case HangVerdict::kMismatched:
    case HangVerdict::kProcessGone:
    case HangVerdict::kProcessStopped:
    case HangVerdict::kDriverError:
      break;
  }
  return false;
}

// Of the same kind of call, while that was a measure for a wait that begins.
uint64_t LongestBefore(const RankView& rank, int64_t since_realtime_ns) {
  const CommunicatorSnapshot& communicator = *rank.communicator;
  uint64_t longest_ns = 0;
  for (const LongestWaitSnapshot& wait : communicator.longest_waits) {
    if (!wait.op.empty() && wait.op == communicator.last_call_op &&
        wait.size_class == communicator.last_call_size_class &&
        since_realtime_ns <= wait.counts_until_realtime_ns) {
      longest_ns = std::max(longest_ns, wait.longest_ns);
    }
  }
  return longest_ns;
}

using Findings = std::vector<std::optional<HangFinding>>;

// Each suspect waits in some communicator where that is usual. If it waits in others, too, these
// are hangs of their own.
bool AreSuspectsUsual(const Findings& findings, const HangFinding& finding) {
  return std::all_of(
      finding.suspects.begin(), finding.suspects.end(), [&](const RankView* suspect) {
        return std::any_of(finding.waits_in.begin(), finding.waits_in.end(),
                           [&](const HangFinding::Elsewhere& each) {
                             const std::optional<HangFinding>& there = findings[each.view];
                             return each.suspect == suspect && there && there->is_usual;
                           });
      });
}

}  // namespace

void CompareWithPast(int64_t now_realtime_ns, HangFinding* finding) {
  // The past is that of launches, not of replays.
  const bool is_replay =
      finding->detail == HangDetail::kReplay || finding->detail == HangDetail::kWork;
  if (is_replay || !CanEnd(*finding) || finding->waiting.empty()) return;
  // The shortest of them: a rank that never had to wait waits for somebody else this time.
  uint64_t before_ns = UINT64_MAX;
  for (const RankView* rank : finding->waiting) {
    before_ns = std::min(before_ns, LongestBefore(*rank, finding->since_realtime_ns));
  }
  finding->longest_wait_before_ns = before_ns;
  const auto waited = static_cast<double>(ElapsedNs(now_realtime_ns, finding->since_realtime_ns));
  finding->is_usual =
      before_ns >= kLeastLongWaitNs && waited <= kUsualFactor * static_cast<double>(before_ns);
}

void FollowUsualWaits(Findings* findings) {
  // One round for each step of the longest chain of waits.
  for (bool is_changed = true; is_changed;) {
    is_changed = false;
    for (std::optional<HangFinding>& finding : *findings) {
      if (!finding || finding->is_usual || finding->waits_in.empty()) continue;
      if (finding->detail == HangDetail::kReplay) continue;
      if (!AreSuspectsUsual(*findings, *finding)) continue;
      finding->is_usual = finding->is_usual_elsewhere = is_changed = true;
    }
  }
}

}  // namespace nccl_pulse
