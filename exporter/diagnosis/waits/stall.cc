#include "exporter/diagnosis/waits/stall.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "absl/strings/str_join.h"
#include "exporter/diagnosis/waits/usual_wait.h"

namespace nccl_pulse {
namespace {

struct VerdictOfState {
  HangVerdict verdict;
  Situation situation;
};

// In the order of ActorState.
constexpr VerdictOfState kVerdictsOfStates[] = {
    {HangVerdict::kMismatched, Situation::kPlain},
    {HangVerdict::kDriverError, Situation::kPlain},
    {HangVerdict::kProcessGone, Situation::kPlain},
    {HangVerdict::kProcessStopped, Situation::kPlain},
    {HangVerdict::kRankNotCalled, Situation::kFinalized},
    {HangVerdict::kRankNotCalled, Situation::kExiting},
    {HangVerdict::kRankNotBegun, Situation::kPlain},
    {HangVerdict::kNoProgress, Situation::kPlain},
    {HangVerdict::kRankNotLaunched, Situation::kPlain},
    {HangVerdict::kRankNotBegun, Situation::kInGraphs},
    {HangVerdict::kRankNotBegun, Situation::kInReplay},
    {HangVerdict::kRankNotCalled, Situation::kPlain},
    {HangVerdict::kRankNotSeen, Situation::kPlain},
    {HangVerdict::kUnknown, Situation::kPlain},
    {HangVerdict::kNoProgress, Situation::kPlain},
    {HangVerdict::kUnknown, Situation::kPlain},
};
static_assert(std::size(kVerdictsOfStates) == static_cast<std::size_t>(ActorState::kMoving) + 1,
              "a row for each state, in their order");

void SortUnique(Ranks* ranks) {
  std::sort(ranks->begin(), ranks->end(), std::less<>());
  ranks->erase(std::unique(ranks->begin(), ranks->end()), ranks->end());
}

// Ranks outside the largest side; none if no side is the largest.
Ranks OddOnes(const Mismatch& mismatch) {
  const auto is_smaller = [](const CallSide& a, const CallSide& b) {
    return a.ranks.size() < b.ranks.size();
  };
  const auto largest = std::max_element(mismatch.sides.begin(), mismatch.sides.end(), is_smaller);
  const auto as_large = std::count_if(
      mismatch.sides.begin(), mismatch.sides.end(),
      [&](const CallSide& side) { return side.ranks.size() == largest->ranks.size(); });
  Ranks odd;
  if (as_large != 1) return odd;
  for (auto side = mismatch.sides.begin(); side != mismatch.sides.end(); ++side) {
    if (side == largest) continue;
    odd.insert(odd.end(), side->ranks.begin(), side->ranks.end());
  }
  SortUnique(&odd);
  return odd;
}

// True if one of the waiting ranks may wait in a Send or Recv.
bool IsPointToPointPossible(const Ranks& waiting) {
  return !std::all_of(waiting.begin(), waiting.end(), [](const auto* rank) {
    return IsCollective(rank->communicator->last_call_op);
  });
}

constexpr std::size_t kMostUnseen = 8;
// Returns the ranks that no endpoint has reported.
std::vector<int32_t> UnseenRanks(const CommunicatorFacts& facts) {
  std::vector<int32_t> unseen;
  std::size_t at = 0;
  const std::vector<RankView>& seen = facts.view->ranks;
  for (int32_t rank = 0; rank < facts.view->nranks && unseen.size() < kMostUnseen; ++rank) {
    while (at < seen.size() && seen[at].rank() < rank) ++at;
    if (at == seen.size() || seen[at].rank() != rank) unseen.push_back(rank);
  }
  return unseen;
}

class StallMaker {
 public:
  StallMaker(const std::vector<CommunicatorView>& views, const Waits& waits, int64_t now_ns)
      : views_(views), waits_(waits), now_ns_(now_ns), of_view_(views.size()) {
    for (uint32_t i = 0; i < waits.graph.actors.size(); ++i) {
      const Actor& actor = At(i);
      if (actor.view != kNoView) of_view_[actor.view].push_back(i);
    }
  }

  // `first`: the number of the job's first finding.
  void Make(const JobFindings& job, int first, std::vector<std::optional<Stall>>* stalls) {
    if (job.findings.empty()) return;
    std::unordered_map<std::size_t, std::vector<std::size_t>> findings_of;  // views
    for (std::size_t i = 0; i < job.findings.size(); ++i) {
      for (const std::size_t view : job.findings[i].views) findings_of[view].push_back(i);
    }
    roots_.clear();
    followed_.clear();
    for (const Finding& finding : job.findings) {
      const auto* named = Get<NamedRoots>(finding);
      if (named == nullptr) continue;
      roots_.insert(named->actors.begin(), named->actors.end());
      followed_.insert(named->followed.begin(), named->followed.end());
    }
    for (const std::size_t view : job.views) {
      FindTargets(view);
      for (const std::size_t i : findings_of[view]) {
        const Finding& finding = job.findings[i];
        if ((*stalls)[view] || (!has_wait_ && HasStart(finding))) continue;
        Begin(view, first + static_cast<int>(i));
        std::visit([this](const auto& what) { Say(what); }, finding.what);
        (*stalls)[view] = Finish();
      }
      if ((*stalls)[view] || !has_start_ || is_queued_) continue;
      Begin(view, -1);
      if (!SayBesides()) continue;
      (*stalls)[view] = Finish();
    }
    for (std::size_t i = 0; i < job.findings.size(); ++i) {
      NumberIfNone(job.findings[i].views, first + static_cast<int>(i), stalls);
    }
    FindUsual(job, stalls);
  }

 private:
  const Actor& At(uint32_t id) const { return waits_.graph.actors[id]; }

  // If no communicator of a finding contains its roots, the finding's number goes to the
  // communicators that wait for them.
  static void NumberIfNone(const std::vector<std::size_t>& views, int number,
                           std::vector<std::optional<Stall>>* stalls) {
    for (const std::size_t view : views) {
      if ((*stalls)[view] && (*stalls)[view]->hang.finding >= 0) return;
    }
    for (const std::size_t view : views) {
      if ((*stalls)[view]) (*stalls)[view]->hang.finding = number;
    }
  }

  // True if ranks have waited for longer than the threshold in one of the finding's communicators
  // that has a named rank.
  bool HasStart(const Finding& finding) const {
    const auto* named = Get<NamedRoots>(finding);
    return std::any_of(finding.views.begin(), finding.views.end(), [&](std::size_t view) {
      const auto is_here = [&](uint32_t id) {
        return At(id).rank == nullptr || InView(view, *At(id).rank) != nullptr;
      };
      if (named != nullptr && std::none_of(named->actors.begin(), named->actors.end(), is_here))
        return false;
      return std::any_of(of_view_[view].begin(), of_view_[view].end(),
                         [this](uint32_t id) { return At(id).is_start; });
    });
  }

  // True if the actor has waited for less than the threshold, but for long enough to be followed.
  static bool IsWait(const Actor& actor) {
    if (actor.kind == ActorKind::kHost) return actor.state == ActorState::kInsideNccl;
    return actor.kind == ActorKind::kGpu && actor.rank->state == RankView::State::kLive &&
           (actor.state == ActorState::kInside || actor.state == ActorState::kBehindOwn);
  }

  // Finds usual waits: a wait is usual if it can end, and is no longer than earlier waits that
  // ended. If ranks wait for less than the threshold, or for ranks of other communicators, the
  // waits there decide.
  void FindUsual(const JobFindings& job, std::vector<std::optional<Stall>>* stalls) const {
    std::map<int, bool> is_finding_usual;
    bool are_all_usual = true;
    for (const std::size_t view : job.views) {
      if (!(*stalls)[view]) continue;
      Stall& stall = *(*stalls)[view];
      stall.hang.is_usual =
          CanEnd(stall) && IsUsual(ElapsedNs(now_ns_, stall.hang.since_realtime_ns),
                                   stall.hang.longest_wait_before_ns);
      if (stall.hang.finding < 0 || !stall.has_start) continue;
      const auto [found, is_new] =
          is_finding_usual.try_emplace(stall.hang.finding, stall.hang.is_usual);
      found->second &= stall.hang.is_usual;
      are_all_usual &= stall.hang.is_usual;
    }
    are_all_usual &= !is_finding_usual.empty();
    for (const std::size_t view : job.views) {
      if (!(*stalls)[view]) continue;
      Stall& stall = *(*stalls)[view];
      if (stall.hang.verdict == HangVerdict::kBlockedElsewhere) {
        stall.hang.is_usual = are_all_usual;
      } else if (!stall.has_start) {
        const auto found = is_finding_usual.find(stall.hang.finding);
        stall.hang.is_usual = found != is_finding_usual.end() && found->second;
      }
    }
  }

  // False for the end of a process, a mismatch and similar causes, and if a waiting rank has ended.
  static bool CanEnd(const Stall& stall) {
    const HangVerdict verdict = stall.hang.verdict;
    const Situation situation = stall.hang.situation;
    if (!stall.victims.empty() || stall.is_of_circle || verdict == HangVerdict::kMismatched ||
        verdict == HangVerdict::kProcessGone || verdict == HangVerdict::kProcessStopped ||
        verdict == HangVerdict::kDriverError) {
      return false;
    }
    return verdict == HangVerdict::kRankNotBegun
               ? situation == Situation::kPlain
               : situation != Situation::kFinalized && situation != Situation::kExiting;
  }

  // Finds the actors that the communicator's ranks wait for directly.
  void FindTargets(std::size_t view) {
    targets_.clear();
    has_start_ = has_wait_ = false;
    is_queued_ = true;
    std::set<uint32_t> targets;
    all_targets_.clear();
    for (const uint32_t id : of_view_[view]) {
      const Actor& actor = At(id);
      has_start_ |= actor.is_start;
      has_wait_ |= actor.is_start || IsWait(actor) ||
                   (actor.kind == ActorKind::kEvent && roots_.count(id) != 0);
      if (actor.is_start) is_queued_ &= actor.is_queued_start;
      const bool is_waiting = actor.is_start || actor.kind == ActorKind::kCall;
      for (const Arrow& arrow : actor.arrows) {
        all_targets_.insert(arrow.to);
        if (is_waiting && At(arrow.to).kind != ActorKind::kCall) targets.insert(arrow.to);
      }
    }
    targets_.assign(targets.begin(), targets.end());
  }

  void Begin(std::size_t view, int number) {
    view_ = view;
    stall_ = Stall();
    stall_.view = &views_[view];
    stall_.waits = &waits_.views[view];
    stall_.hang.finding = number;
    stall_.has_start = has_start_;
    FindWaiting();
  }

  void FindWaiting() {
    stall_.hang.since_realtime_ns = INT64_MAX;
    uint64_t before_ns = UINT64_MAX;
    const bool has_gpu = std::any_of(
        of_view_[view_].begin(), of_view_[view_].end(),
        [this](uint32_t id) { return At(id).is_start && At(id).kind == ActorKind::kGpu; });
    for (const bool with_all : {false, true}) {  // prefers waits over the threshold
      for (const uint32_t id : of_view_[view_]) {
        const Actor& actor = At(id);
        if (actor.rank == nullptr || (!actor.is_start && !with_all)) continue;
        if (actor.kind != ActorKind::kGpu && (!actor.is_start || has_gpu)) continue;
        // A host's `rank` may be of a communicator that it has left.
        const RankView* rank = InView(*actor.rank);
        if (actor.state == ActorState::kIdleGpu || rank == nullptr ||
            rank->state != RankView::State::kLive) {
          continue;
        }
        stall_.waiting.push_back(rank);
        stall_.hang.since_realtime_ns = std::min(stall_.hang.since_realtime_ns, actor.since_ns);
      }
      if (!stall_.waiting.empty()) break;
    }
    if (stall_.hang.since_realtime_ns == INT64_MAX) stall_.hang.since_realtime_ns = now_ns_;
    SortUnique(&stall_.waiting);
    for (const RankView* rank : stall_.waiting) {
      before_ns = std::min(before_ns, LongestWaitBefore(*rank, stall_.hang.since_realtime_ns));
    }
    stall_.hang.longest_wait_before_ns = before_ns == UINT64_MAX ? 0 : before_ns;
    stall_.hang.op = OpOfWaits(*stall_.waits, stall_.waiting);
    for (const Member& each : stall_.waits->members) {
      if (!each.is_live() && each.is_in_flight()) stall_.victims.push_back(each.rank);
    }
  }

  // Returns the rank of the same thread in this communicator.
  const RankView* InView(const RankView& rank) const { return InView(view_, rank); }
  const RankView* InView(std::size_t view, const RankView& rank) const {
    const RankView* perhaps = nullptr;
    for (const RankView& here : views_[view].ranks) {
      if (here.process != rank.process) continue;
      const SameGpu same = CompareGpus(*here.communicator, *rank.communicator);
      if (same == SameGpu::kNo || here.thread != rank.thread) continue;
      if (same == SameGpu::kYes) return &here;  // the same GPU, so the same thread
      if (perhaps == nullptr) perhaps = &here;
    }
    return perhaps;
  }

  void Suspect(uint32_t id) {
    if (At(id).rank == nullptr) return;
    if (const RankView* here = InView(*At(id).rank)) stall_.suspects.push_back(here);
  }

  void Set(ActorState state) {
    const VerdictOfState& row = kVerdictsOfStates[static_cast<std::size_t>(state)];
    stall_.hang.verdict = row.verdict;
    stall_.hang.situation = row.situation;
  }

  void Say(const NamedRoots& named) {
    Set(named.state);
    FindSuspects(named);
    if (stall_.waits->is_being_made) SayAbsent();
    FindAlsoBlocked(named.state == ActorState::kBehindOwn ? ActorKind::kGpu : ActorKind::kHost);
    if (named.state == ActorState::kBehindReplay) SayReplay();
    if (named.state != ActorState::kOutside) return;
    stall_.is_of_circle = named.waits_in.has_value();
    if (named.waits_in && !stall_.elsewhere) stall_.elsewhere = views_[*named.waits_in].comm_id;
    const auto is_gone = [this](uint32_t id) { return !At(id).rank->is_live_process(); };
    const auto is_from_outside = [](const auto* rank) { return rank->process->is_from_outside; };
    if (std::all_of(named.actors.begin(), named.actors.end(), is_gone)) {
      stall_.hang.verdict = HangVerdict::kProcessGone;
    } else if (stall_.waits->is_left) {
      stall_.hang.situation = Situation::kLeftBehind;
    } else if (!stall_.suspects.empty() &&
               std::all_of(stall_.suspects.begin(), stall_.suspects.end(), is_from_outside)) {
      stall_.hang.situation = Situation::kFromOutside;
    }
  }

  void FindSuspects(const NamedRoots& named) {
    // Only its own GPUs, and the actors that its ranks wait for: there may be as many roots as
    // communicators.
    std::set<uint32_t> here;
    for (const uint32_t id : all_targets_) {
      if (roots_.count(id) != 0) here.insert(id);
    }
    for (const uint32_t id : of_view_[view_]) {
      if (At(id).kind != ActorKind::kHost && roots_.count(id) != 0) here.insert(id);
    }
    if (stall_.waiting.empty()) {  // only hosts outside NCCL wait for it
      stall_.hang.since_realtime_ns = At(named.actors.front()).since_ns;
    }
    for (const uint32_t id : here) {
      Suspect(id);
      if (At(id).kind == ActorKind::kUnseen) stall_.unseen = UnseenRanks(stall_.waits->facts);
    }
    for (std::size_t i = 0; i < std::min(named.actors.size(), kMostSearched); ++i) {
      if (stall_.suspects.empty() && stall_.unseen.empty()) Suspect(named.actors[i]);
    }
    for (std::size_t i = 0; i < std::min(named.followed.size(), kMostSearched); ++i) {
      const RankView* rank = InView(*At(named.followed[i]).rank);
      if (rank != nullptr) stall_.followed.push_back(rank);
    }
    SortUnique(&stall_.followed);
  }

  // Finds ranks here that have not arrived either, and may wait elsewhere.
  void FindAlsoBlocked(ActorKind kind_of_root) {
    for (const uint32_t id : targets_) {
      if (At(id).kind != kind_of_root || roots_.count(id) != 0) continue;
      const RankView* rank = InView(*At(id).rank);
      if (rank == nullptr || rank->state != RankView::State::kLive) continue;
      stall_.also_blocked.push_back(rank);
      if (!stall_.elsewhere) FindElsewhere(id);
    }
    SortUnique(&stall_.also_blocked);
  }

  void SayAbsent() {
    stall_.hang.verdict = HangVerdict::kRankNotSeen;
    stall_.hang.situation = Situation::kBeingMade;
    stall_.suspects = stall_.waits->absent;
    if (stall_.suspects.empty()) {
      stall_.unseen = UnseenRanks(stall_.waits->facts);
      return;
    }
    for (const RankView* rank : stall_.suspects) stall_.unseen.push_back(rank->rank());
    for (std::size_t i = 0; i < views_.size(); ++i) {
      const auto& ranks = views_[i].ranks;
      if (!ranks.empty() && stall_.suspects.front() >= &ranks.front() &&
          stall_.suspects.front() <= &ranks.back()) {
        stall_.hang.suspects_seen_in = i;
      }
    }
  }

  void SayReplay() {
    const RankView* ahead = stall_.waits->facts.replays.ahead;
    if (ahead == nullptr) return;
    const GraphPosition& position = ahead->communicator->graph_position;
    stall_.hang.replay = {position.graph, position.calls_before, position.calls_until,
                          position.calls};
  }

  void Say(const CircleOfWaits& circle) {
    stall_.hang.verdict = HangVerdict::kCircularWait;
    const std::size_t count = circle.actors.size();
    for (std::size_t i = 0; i < count; ++i) {
      const Actor& actor = At(circle.actors[i]);
      const Actor& before = At(circle.actors[(i + count - 1) % count]);
      const bool is_missing = actor.kind == ActorKind::kHost && before.view != kNoView;
      const bool is_peer = actor.kind == ActorKind::kGpu && before.kind == ActorKind::kGpu;
      if (!is_missing && !is_peer) continue;
      const std::size_t at = before.view;
      if (const RankView* rank = InView(at, *actor.rank)) {
        stall_.circle.emplace_back(&views_[at], rank);
      }
      if (at == view_) Suspect(circle.actors[i]);
    }
    // Begins the circle with this communicator.
    const auto here = std::find_if(stall_.circle.begin(), stall_.circle.end(),
                                   [this](const auto& step) { return step.first == stall_.view; });
    if (here != stall_.circle.end()) {
      std::rotate(stall_.circle.begin(), here, stall_.circle.end());
    }
  }

  void Say(const DifferentCalls& /*different*/) {
    const Mismatch& mismatch = *stall_.waits->mismatch;
    stall_.hang.verdict = HangVerdict::kMismatched;
    if (mismatch.is_of_peers()) {
      stall_.hang.situation = Situation::kPeerSizes;
      stall_.suspects = {mismatch.sides[0].ranks.front(), mismatch.sides[1].ranks.front()};
    } else {
      stall_.suspects = OddOnes(mismatch);
    }
    if (stall_.suspects.empty()) stall_.suspects = stall_.waits->facts.live;
    stall_.hang.op = absl::StrJoin(mismatch.operations, ",");
  }

  void Say(const NoProgress& stalled) {
    const CommunicatorFacts& facts = stall_.waits->facts;
    stall_.hang.verdict = HangVerdict::kNoProgress;
    const bool are_inside =
        !facts.live.empty() &&
        std::all_of(facts.live.begin(), facts.live.end(), [](const RankView* rank) {
          return rank->activity.reason == UnknownReason::kLaunchNotReported;
        });
    if (facts.view->has_point_to_point && IsPointToPointPossible(stall_.waiting)) {
      stall_.hang.verdict = HangVerdict::kPointToPoint;
    } else if (facts.work.is_stalled() && facts.replays.known != ReplaysKnown::kYes) {
      stall_.hang.situation = Situation::kInGraphs;
    } else if (stalled.is_in_replay) {
      stall_.hang.situation = Situation::kInReplay;
      SayReplay();
    } else if (are_inside) {
      stall_.hang.situation = Situation::kInsideNccl;
    }
  }

  void Say(const QueuedWaits& /*queued*/) {
    stall_.hang.verdict = HangVerdict::kNoProgress;
    stall_.hang.situation = Situation::kQueued;
  }

  void Say(const CannotTell& unknown) {
    stall_.hang.verdict = HangVerdict::kUnknown;
    stall_.is_posted = unknown.is_posted;
    for (const uint32_t id : targets_) {
      if (At(id).rank == nullptr) continue;
      const RankView* here = InView(*At(id).rank);
      if (here == nullptr) continue;
      (At(id).kind == ActorKind::kGpu ? stall_.waiting : stall_.also_blocked).push_back(here);
      if (!stall_.elsewhere) FindElsewhere(id);
    }
    SortUnique(&stall_.waiting);
  }

  // Fills the stall of a communicator whose ranks wait for a root in another communicator. Returns
  // false if it has none.
  bool SayBesides() {
    if (stall_.waits->is_being_made) {
      SayAbsent();
      return true;
    }
    bool is_unknown = false;
    bool is_any = false;
    for (const uint32_t id : targets_) {
      const Actor& target = At(id);
      if (target.state == ActorState::kMoving) return false;
      is_unknown |= target.kind == ActorKind::kUnknown;
      if (target.rank == nullptr) continue;
      if (followed_.count(id) != 0) {  // another event of the same kind came first, elsewhere
        Set(target.state);
        stall_.suspects.clear();
        Suspect(id);
        return true;
      }
      is_any = true;
      Suspect(id);
      if (!stall_.elsewhere) FindElsewhere(id);
    }
    if (is_any) {
      stall_.hang.verdict = HangVerdict::kBlockedElsewhere;
      return !stall_.suspects.empty();
    }
    if (is_unknown) {
      Say(CannotTell{view_});
    } else {
      Say(NoProgress{view_, false});
    }
    return true;
  }

  void FindElsewhere(uint32_t id) {
    std::unordered_set<uint32_t> seen{id};
    std::vector<uint32_t> next{id};
    for (std::size_t at = 0; at < next.size(); ++at) {
      for (const Arrow& arrow : At(next[at]).arrows) {
        const Actor& actor = At(arrow.to);
        if (actor.view != kNoView && actor.view != view_ && !stall_.elsewhere) {
          stall_.elsewhere = views_[actor.view].comm_id;
        }
        if (seen.insert(arrow.to).second) next.push_back(arrow.to);
      }
    }
  }

  Stall Finish() {
    // The named rank is not in this communicator, whose ranks wait for a rank that waits for it.
    if (stall_.suspects.empty() && stall_.unseen.empty() && NeedsSuspects(stall_.hang.verdict)) {
      stall_.hang.verdict = HangVerdict::kBlockedElsewhere;
      stall_.hang.situation = Situation::kPlain;
      for (const uint32_t id : targets_) {
        Suspect(id);
        if (followed_.count(id) != 0) Set(At(id).state);
      }
      if (stall_.suspects.empty()) stall_.hang.verdict = HangVerdict::kUnknown;
      stall_.hang.finding = -1;
    }
    SortUnique(&stall_.suspects);
    if (stall_.hang.verdict != HangVerdict::kMismatched) {
      stall_.waiting = Without(stall_.waiting, stall_.suspects);
      if (!stall_.waiting.empty()) stall_.hang.op = OpOfWaits(*stall_.waits, stall_.waiting);
    }
    stall_.victims = Without(stall_.victims, stall_.suspects);
    return std::move(stall_);
  }

  static bool NeedsSuspects(HangVerdict verdict) {
    return verdict != HangVerdict::kNoProgress && verdict != HangVerdict::kPointToPoint &&
           verdict != HangVerdict::kUnknown && verdict != HangVerdict::kCircularWait;
  }

  const std::vector<CommunicatorView>& views_;
  const Waits& waits_;
  const int64_t now_ns_;
  std::vector<std::vector<uint32_t>> of_view_;  // actors
  std::size_t view_ = 0;
  std::vector<uint32_t> targets_;
  std::set<uint32_t> all_targets_;                 // including waits below the threshold
  std::unordered_set<uint32_t> roots_, followed_;  // ids of the job's named actors
  bool has_start_ = false;
  bool has_wait_ = false;   // also if only for less than the threshold
  bool is_queued_ = false;  // all starts are GPUs that have not begun
  Stall stall_;
};

}  // namespace

std::string OpOfWaits(const ViewWaits& waits, const Ranks& waiting) {
  std::set<std::string> names;
  for (const RankView* rank : waiting) {
    names.insert(OpOfWait(waits.members[rank - waits.facts.view->ranks.data()]));
  }
  if (names.size() == 1 && !names.begin()->empty()) return *names.begin();
  std::set<std::string> all;
  for (const RankView* rank : waiting) {
    for (const auto& call : rank->communicator->calls) all.insert(call.op);
  }
  return all.size() == 1 ? *all.begin() : "";
}

std::vector<std::optional<Stall>> StallsOf(const std::vector<CommunicatorView>& views,
                                           const Waits& waits, const std::vector<JobFindings>& jobs,
                                           int64_t now_realtime_ns) {
  std::vector<std::optional<Stall>> stalls(views.size());
  StallMaker maker(views, waits, now_realtime_ns);
  int first = 0;
  for (const JobFindings& job : jobs) {
    maker.Make(job, first, &stalls);
    first += static_cast<int>(job.findings.size());
  }
  return stalls;
}

}  // namespace nccl_pulse
