#include "exporter/diagnosis/usual_wait.h"

#include <algorithm>

namespace nccl_pulse {
namespace {

// Whether a hang with this verdict can end well at all.
bool CanEnd(const HangFinding& finding) {
  if (!finding.beside.ended_waiting.empty()) return false;
  if (std::any_of(finding.suspects.begin(), finding.suspects.end(), [](const RankView* suspect) {
        return suspect->state != RankView::State::kLive;
      })) {
    return false;
  }
  return EntryOf(finding.verdict).ends == Ends::kByItself &&
         !(finding.verdict == HangVerdict::kRankNotCalled &&
           std::any_of(finding.suspects.begin(), finding.suspects.end(),
                       [](const RankView* rank) { return IsExiting(*rank); }));
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
        return std::any_of(finding.elsewhere.waits_in.begin(), finding.elsewhere.waits_in.end(),
                           [&](const HangFinding::Elsewhere::Wait& each) {
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
      if (!finding || finding->is_usual || finding->elsewhere.waits_in.empty()) continue;
      if (finding->detail == HangDetail::kReplay) continue;
      if (!AreSuspectsUsual(*findings, *finding)) continue;
      finding->is_usual = finding->elsewhere.is_usual = is_changed = true;
    }
  }
}

}  // namespace nccl_pulse
