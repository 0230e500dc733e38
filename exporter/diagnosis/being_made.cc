#include "exporter/diagnosis/being_made.h"

#include <algorithm>
#include <cstdint>

#include "exporter/diagnosis/verdict_draft.h"

namespace nccl_pulse {
namespace {

// Two ranks may be the same two of several communicators.
constexpr std::size_t kLeastAlike = 2;

// Its process has done something since it came to this communicator.
bool HasGoneOn(const RankView& rank) {
  const CommunicatorSnapshot& made = *rank.communicator;
  if (made.launches != 0 || !made.calls.empty() || made.captured) return true;
  if (AreCallsKnown(*rank.process, made) != CallsKnown::kYes) return true;
  const auto& all = rank.process->communicators;
  return std::any_of(all.begin(), all.end(), [&made](const CommunicatorSnapshot& each) {
    return std::max({each.last_launch_realtime_ns, each.unreported_since_realtime_ns,
                     each.graph_moved_realtime_ns, each.init_realtime_ns}) > made.init_realtime_ns;
  });
}

// Ranks of that communicator that are not seen here, if those that are seen are the same in both.
Ranks AbsentIn(const CommunicatorView& other, const CommunicatorView& here) {
  if (other.nranks != here.nranks || other.is_mixed) return {};
  for (const RankView& rank : here.ranks) {
    const RankView* there = other.Find(rank.rank());
    if (there == nullptr || there->process != rank.process) return {};
  }
  Ranks absent;
  for (const RankView& rank : other.ranks) {
    if (here.Find(rank.rank()) == nullptr) absent.push_back(&rank);
  }
  return absent;
}

}  // namespace

std::optional<HangFinding> ConcludeBeingMade(const CommunicatorFacts& facts) {
  const CommunicatorView& view = *facts.view;
  if (facts.live.empty() || facts.live.size() != view.ranks.size()) return std::nullopt;
  if (facts.are_all_seen() || !view.are_all_expected) return std::nullopt;
  if (std::any_of(facts.live.begin(), facts.live.end(),
                  [](const RankView* rank) { return HasGoneOn(*rank); })) {
    return std::nullopt;
  }
  int64_t since_ns = 0;
  for (const RankView* rank : facts.live) {
    since_ns = std::max(since_ns, rank->communicator->init_realtime_ns);
  }
  if (ElapsedNs(facts.now_ns, since_ns) < facts.hang_after_ns) return std::nullopt;
  VerdictDraft draft(facts);
  draft.SetWaiting(facts.live, [since_ns](const RankView& /*rank*/) { return since_ns; });
  draft.finding.not_seen.ranks = UnseenRanks(facts, kMostUnseen);
  draft.Say(HangVerdict::kRankNotSeen, HangDetail::kBeingMade, {});
  return std::move(draft.finding);
}

void FindAbsent(const std::vector<CommunicatorView>& views, const RanksOfProcesses& ranks,
                std::size_t here, std::optional<HangFinding>* found) {
  if (!*found || (*found)->detail != HangDetail::kBeingMade) return;
  HangFinding& finding = **found;
  if (finding.waiting.size() >= kLeastAlike) {
    for (const auto& [there, rank] : ranks.Of(*finding.waiting.front())) {
      if (there == here || !finding.not_seen.absent.empty()) continue;
      finding.not_seen.absent = AbsentIn(views[there], views[here]);
      finding.not_seen.absent_in = there;
    }
  }
  if (finding.not_seen.absent.empty()) {
    if (finding.view->nnodes != 1) found->reset();
    return;
  }
  // The others may be at an endpoint that has not answered.
  finding.not_seen.ranks.clear();
  for (const RankView* rank : finding.not_seen.absent)
    finding.not_seen.ranks.push_back(rank->rank());
}

}  // namespace nccl_pulse
