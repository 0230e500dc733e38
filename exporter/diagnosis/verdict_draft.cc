#include "exporter/diagnosis/verdict_draft.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_join.h"

namespace nccl_pulse {

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
  finding.sides = std::move(mismatch.sides);
  finding.call_number = mismatch.call_number;
  const Ranks fewer = Fewer(finding.sides);
  Say(HangVerdict::kMismatched, mismatch.detail, fewer.empty() ? facts_.live : fewer);
}

void VerdictDraft::SayOwing() {
  finding.op = OnlyOperation(facts_.owed);
  finding.calls = facts_.owed;
  finding.calls_before = CallsBefore(finding.calls, facts_.owing);
  finding.last_called = LastOfOwed(finding.calls, facts_.owing);
  Say(HangVerdict::kRankNotCalled, HangDetail::kOwes, facts_.owing);
}

void VerdictDraft::AddOwing() {
  finding.also_owing = facts_.owing;
  finding.calls = facts_.owed;
}

void VerdictDraft::SayBehindUnseen() {
  finding.ahead = facts_.live[facts_.most];
  const Ranks named = NamedByCounts(facts_);
  if (named.empty()) return SayUnknown(HangDetail::kBehindUnseen);
  Ranks& unseen = finding.behind_unseen;
  unseen.erase(std::remove_if(unseen.begin(), unseen.end(),
                              [&named](const RankView* rank) { return Contains(named, rank); }),
               unseen.end());
  finding.calls = CallsOwedBy(facts_, named);
  finding.op = OnlyOperation(finding.calls);
  finding.calls_before = CallsBefore(finding.calls, named);
  finding.last_called = LastOfOwed(finding.calls, named);
  Say(HangVerdict::kRankNotCalled, HangDetail::kOwes, named);
}

}  // namespace nccl_pulse
