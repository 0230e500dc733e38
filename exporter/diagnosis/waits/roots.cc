#include "exporter/diagnosis/waits/roots.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "exporter/diagnosis/verdict_draft.h"

namespace nccl_pulse {
namespace {

struct VerdictOfStand {
  HangVerdict verdict;
  Situation situation;
};

// In the order of Stand.
constexpr VerdictOfStand kVerdictsOfStands[] = {
    {HangVerdict::kMismatched, Situation::kPlain},
    {HangVerdict::kDriverError, Situation::kPlain},
    {HangVerdict::kProcessGone, Situation::kPlain},
    {HangVerdict::kProcessStopped, Situation::kPlain},
    {HangVerdict::kRankNotCalled, Situation::kFinalized},
    {HangVerdict::kRankNotCalled, Situation::kExiting},
    {HangVerdict::kRankNotBegun, Situation::kPlain},
    {HangVerdict::kRankNotLaunched, Situation::kPlain},
    {HangVerdict::kRankNotBegun, Situation::kInGraphs},
    {HangVerdict::kRankNotBegun, Situation::kInReplay},
    {HangVerdict::kRankNotSeen, Situation::kBeingMade},
    {HangVerdict::kRankNotCalled, Situation::kPlain},
    {HangVerdict::kRankNotSeen, Situation::kPlain},
    {HangVerdict::kUnknown, Situation::kPlain},
    {HangVerdict::kNoProgress, Situation::kPlain},
    {HangVerdict::kUnknown, Situation::kPlain},
};
static_assert(std::size(kVerdictsOfStands) == static_cast<std::size_t>(Stand::kMoving) + 1,
              "a row for each stand, in their order");

class Maker {
 public:
  Maker(const std::vector<CommunicatorView>& views, const Waits& waits)
      : views_(views), waits_(waits) {}

  JobRoot Make(const Finding& finding) {
    root_ = JobRoot();
    root_.is_usual = finding.is_usual;
    root_.since_realtime_ns = finding.since_ns;
    for (const std::size_t view : finding.views) {
      root_.communicators.push_back(views_[view].comm_id);
    }
    std::visit([this, &finding](const auto& what) { Say(what, finding); }, finding.what);
    std::stable_sort(root_.ranks.begin(), root_.ranks.end(), [](const auto& a, const auto& b) {
      return std::pair(a.comm_id, a.rank) < std::pair(b.comm_id, b.rank);
    });
    return std::move(root_);
  }

 private:
  const Actor& At(uint32_t id) const { return waits_.graph.actors[id]; }

  void Say(const NamedRoots& named, const Finding& finding) {
    const VerdictOfStand& row = kVerdictsOfStands[static_cast<std::size_t>(named.stand)];
    root_.verdict = row.verdict;
    root_.situation = row.situation;
    for (const uint32_t id : named.actors) {
      const Actor& actor = At(id);
      if (actor.kind == ActorKind::kUnseen) {
        const CommunicatorFacts& facts = waits_.views[actor.view].facts;
        for (const int32_t rank : UnseenRanks(facts, kMostUnseen)) {
          root_.ranks.push_back({views_[actor.view].comm_id, rank});
        }
        if (waits_.views[actor.view].is_being_made) root_.situation = Situation::kBeingMade;
      } else {
        Add(*actor.rank, finding);
        if (named.stand == Stand::kOutside && actor.rank->process->end != ProcessEnd::kLive) {
          root_.verdict = HangVerdict::kProcessGone;
        }
      }
    }
  }
  void Say(const CircleOfWaits& circle, const Finding& finding) {
    root_.verdict = HangVerdict::kCircularWait;
    for (const uint32_t id : circle.actors) {
      if (At(id).rank != nullptr) Add(*At(id).rank, finding);
    }
  }
  void Say(const DifferentCalls& different, const Finding& finding) {
    root_.verdict = HangVerdict::kMismatched;
    for (const RankView* rank : OddOnes(*waits_.views[different.view].mismatch)) {
      Add(*rank, finding);
    }
  }
  void Say(const NoProgress& stalled, const Finding& /*finding*/) {
    root_.verdict = views_[stalled.view].has_point_to_point ? HangVerdict::kPointToPoint
                                                            : HangVerdict::kNoProgress;
    if (stalled.is_in_replay) root_.situation = Situation::kInReplay;
  }
  void Say(const QueuedWaits& /*queued*/, const Finding& /*finding*/) {
    root_.verdict = HangVerdict::kNoProgress;
    root_.situation = Situation::kQueued;
  }
  void Say(const CannotTell& /*unknown*/, const Finding& /*finding*/) {
    root_.verdict = HangVerdict::kUnknown;
  }

  // Ranks outside the largest side; all if no side is the largest.
  static Ranks OddOnes(const Mismatch& mismatch) {
    const auto largest = std::max_element(
        mismatch.sides.begin(), mismatch.sides.end(),
        [](const CallSide& a, const CallSide& b) { return a.ranks.size() < b.ranks.size(); });
    const auto as_large = std::count_if(
        mismatch.sides.begin(), mismatch.sides.end(),
        [&largest](const CallSide& side) { return side.ranks.size() == largest->ranks.size(); });
    Ranks odd;
    for (auto side = mismatch.sides.begin(); side != mismatch.sides.end(); ++side) {
      if (side == largest && as_large == 1) continue;
      odd.insert(odd.end(), side->ranks.begin(), side->ranks.end());
    }
    return odd;
  }

  // By its rank in the communicator in which the others wait for it.
  void Add(const RankView& rank, const Finding& finding) {
    for (const JobRank& each : root_.ranks) {
      if (each.process == rank.process) return;
    }
    const RankView* best = &rank;
    for (const std::size_t view : finding.views) {
      for (const RankView& here : views_[view].ranks) {
        if (here.process != rank.process) continue;
        if (CompareGpus(*here.communicator, *rank.communicator) == SameGpu::kNo) continue;
        best = &here;
      }
      if (best != &rank) break;
    }
    root_.ranks.push_back(
        {best->communicator->comm_id, best->rank(), best->process, best->communicator});
  }

  const std::vector<CommunicatorView>& views_;
  const Waits& waits_;
  JobRoot root_;
};

}  // namespace

std::vector<JobRoot> RootsOf(const std::vector<CommunicatorView>& views, const Waits& waits,
                             const std::vector<JobFindings>& found) {
  std::vector<JobRoot> roots;
  for (const JobFindings& job : found) {
    for (const Finding& finding : job.findings) roots.push_back(Maker(views, waits).Make(finding));
  }
  return roots;
}

}  // namespace nccl_pulse
