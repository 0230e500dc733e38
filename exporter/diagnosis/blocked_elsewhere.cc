#include "exporter/diagnosis/blocked_elsewhere.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "exporter/diagnosis/being_made.h"
#include "exporter/diagnosis/hang_verdict.h"

namespace nccl_pulse {
namespace {

using Findings = std::vector<std::optional<HangFinding>>;

SameGpu Compare(const RankView& a, const RankView& b) {
  return a.process != b.process ? SameGpu::kNo : CompareGpus(*a.communicator, *b.communicator);
}

// The rank's GPU works on, or waits in, a launch that may be in front of that of `later`, which has
// not begun. Two launches that have not begun are behind the same work. When a launch that has begun
// was made is known exactly.
bool IsBusyBefore(const RankView& rank, const RankView& later) {
  if (rank.state != RankView::State::kLive || !rank.activity.is_in_flight()) return false;
  return rank.activity.oldest_launch == OldestLaunch::kUnknown ||
         (rank.activity.oldest_launch == OldestLaunch::kBegun &&
          rank.InFlightSince() < later.InFlightSince());
}

// The rank's GPU has completed, a moment ago, some of what was launched before that of `later`.
bool MovesBefore(const RankView& rank, const RankView& later, int64_t hang_after_ns,
                 int64_t now_ns) {
  const CommunicatorSnapshot& communicator = *rank.communicator;
  const int64_t since = rank.InFlightSince();
  const int64_t launched = since != 0 ? since : communicator.last_launch_realtime_ns;
  const int64_t completed = communicator.last_completion_realtime_ns;
  return communicator.has_heartbeat && launched <= later.InFlightSince() && completed != 0 &&
         ElapsedNs(now_ns, completed) < hang_after_ns;
}

// A suspect of one communicator that has work in flight in another one, and may wait there.
struct Link {
  const RankView* suspect;
  std::size_t to;       // index of the view
  bool is_certain;      // it is on the same GPU, and its work there is known to be in flight
  bool is_not_awaited;  // its host may have posted that work ahead, and be elsewhere
};

// Which links a circle is made of.
enum class Links { kAll, kCertain, kAwaited };

// Whether ranks may make that call at different places of their programs. A Recv is posted ahead
// of its Send, and a Broadcast ahead of its root's. All ranks make the other calls in one order,
// unless they use their communicators in different orders. What is inside NCCL holds its host there.
bool MayBePostedAhead(const CommunicatorView& view, const RankView& rank) {
  if (IsInsideNccl(rank) && !MayHaveReturned(rank)) return false;
  return view.has_point_to_point || !WaitsForAll(rank.communicator->last_call_op);
}

// Whether two ranks have come to the same place of their program in a communicator: in the same
// one, or in two with Send and Recv in which they have the same place.
bool AreAtOnePlace(const CommunicatorView& a, const RankView& rank_a, const CommunicatorView& b,
                   const RankView& rank_b) {
  const bool are_places_alike =
      a.has_point_to_point
          ? b.has_point_to_point && a.nranks == b.nranks && rank_a.rank() == rank_b.rank()
          : &a == &b;
  const CommunicatorSnapshot& one = *rank_a.communicator;
  const CommunicatorSnapshot& other = *rank_b.communicator;
  return are_places_alike && one.launches_completed == other.launches_completed &&
         one.last_call_op == other.last_call_op;
}

// Not the index of a view.
constexpr std::size_t kNowhere = SIZE_MAX;

// All graphs with calls of the communicator are followed: its replays are compared there, too.
bool AreReplaysSeen(const RankView& rank) {
  const GraphPlace& place = rank.communicator->graph_place;
  const UnknownReason reason = rank.activity.reason;
  return (reason == UnknownReason::kCaptured || reason == UnknownReason::kCounterStuck) &&
         place.captures != 0 && place.captures == place.followed;
}

// The communicator in which the suspect may wait without being seen to.
std::size_t MayWaitUnseen(const RanksOfProcesses& ranks, std::size_t here, const RankView& suspect,
                          bool is_in_replay) {
  for (const auto& [i, rank] : ranks.Of(suspect)) {
    if (is_in_replay && AreReplaysSeen(*rank)) continue;
    const bool is_unseen = rank->activity.is_unknown() || rank->activity.is_quiet();
    if (i != here && is_unseen && rank->state == RankView::State::kLive &&
        Compare(*rank, suspect) != SameGpu::kNo) {
      return i;
    }
  }
  return kNowhere;
}

// A hang whose suspects may wait elsewhere.
// A GPU that has run nothing waits nowhere.
bool IsFollowed(const std::optional<HangFinding>& finding) {
  return finding && finding->detail != HangDetail::kWork &&
         (finding->verdict == HangVerdict::kRankNotCalled ||
          finding->verdict == HangVerdict::kRankNotBegun ||
          finding->verdict == HangVerdict::kProcessGone);
}

class Follower {
 public:
  // `findings` also has those of waits that are not yet long enough to be hangs. `may_hide`: of each
  // view, whether all launches there may stand behind a call whose launch NCCL does not report.
  Follower(const std::vector<CommunicatorView>& views, const RanksOfProcesses& ranks,
           const Findings& findings, const std::vector<bool>& may_hide, int64_t hang_after_ns,
           int64_t now_ns)
      : views_(views),
        ranks_(ranks),
        findings_(findings),
        may_hide_(may_hide),
        hang_after_ns_(hang_after_ns),
        now_ns_(now_ns),
        links_(views.size()),
        is_blocked_(views.size()) {
    for (std::size_t i = 0; i < views.size(); ++i) {
      if (findings[i]) FindLinks(i);
    }
  }

  void Apply(std::size_t here, HangFinding* finding) const;
  const std::vector<Link>& LinksOf(std::size_t here) const { return links_[here]; }

 private:
  void FindLinks(std::size_t here) {
    if (!IsFollowed(findings_[here])) return;
    const HangFinding& finding = *findings_[here];
    is_blocked_[here] = !finding.suspects.empty();
    for (const RankView* suspect : finding.suspects) {
      const std::size_t before = links_[here].size();
      AddLinks(here, *suspect);
      if (links_[here].size() == before) is_blocked_[here] = false;
    }
  }

  void AddLinks(std::size_t here, const RankView& suspect) {
    // Stamps are those of all communicators in a graph: who has not come to one is in flight in
    // each of them, and waits where it is found to.
    const bool is_begun = findings_[here]->verdict != HangVerdict::kRankNotBegun ||
                          findings_[here]->detail == HangDetail::kReplay;
    for (const auto& [i, rank] : ranks_.Of(suspect)) {
      if (i == here) continue;
      const SameGpu same = Compare(*rank, suspect);
      if (same == SameGpu::kNo) continue;
      const bool is_queued = findings_[i] && findings_[i]->is_queued;
      if (is_begun || is_queued ? !Waits(i, *rank, suspect) : !IsBusyBefore(*rank, suspect)) {
        continue;
      }
      if (HaveOthersGoneOn(here, i, *rank)) continue;
      const bool is_known = !is_queued && (!is_begun || findings_[i]->is_waiting_known);
      links_[here].push_back(
          {&suspect, i, same == SameGpu::kYes && is_known, MayBePostedAhead(views_[i], *rank)});
    }
  }

  // Behind earlier work of its own GPU a rank waits for that, and perhaps for who is suspected there.
  // A suspect that has ended, here or as a whole, waited when it did.
  bool Waits(std::size_t there, const RankView& rank, const RankView& suspect) const {
    if (!findings_[there]) return false;
    const HangFinding& finding = *findings_[there];
    if (finding.is_queued && finding.suspects.empty()) return false;
    if (finding.verdict == HangVerdict::kCircularWait && Contains(finding.suspects, &rank)) {
      return true;  // of Sends and Recvs: its ranks wait for each other
    }
    return Contains(
        suspect.state == RankView::State::kLive ? finding.waiting : finding.beside.ended_waiting,
        &rank);
  }

  // A rank that waits here has the same work as the suspect in flight there, and has gone on behind
  // it to what the suspect has not called, or its GPU not begun. So nobody waits for that work
  // first.
  bool HaveOthersGoneOn(std::size_t here, std::size_t there, const RankView& rank) const {
    const HangFinding& finding = *findings_[here];
    if (finding.detail == HangDetail::kReplay) return false;
    for (const RankView* waits : finding.waiting) {
      const int64_t came = finding.verdict == HangVerdict::kRankNotCalled
                               ? waits->communicator->last_launch_realtime_ns
                           : waits->activity.oldest_launch == OldestLaunch::kBegun
                               ? waits->InFlightSince()
                               : 0;
      for (const auto& [i, other] : ranks_.Of(*waits)) {
        const int64_t since = other->InFlightSince();
        if (since != 0 && came > since && Compare(*other, *waits) == SameGpu::kYes &&
            AreAtOnePlace(views_[i], *other, views_[there], rank)) {
          return true;
        }
      }
    }
    return false;
  }

  // For a rank that has not called: it may be in an unreported call there whose root is on another
  // node. Not so if it has gone on here for as long after that call, or if it is the one that the
  // others wait for there.
  bool MayStandUnreported(std::size_t there, const RankView& rank, const RankView& suspect) const {
    const int64_t since = rank.activity.since_realtime_ns;
    return rank.activity.reason == UnknownReason::kLaunchNotReported && since != 0 &&
           ElapsedNs(now_ns_, since) >= hang_after_ns_ &&
           ElapsedNs(suspect.communicator->last_launch_realtime_ns, since) < hang_after_ns_ &&
           !(findings_[there] && Contains(findings_[there]->suspects, &rank));
  }

  // Sorts suspects that have not called and are not seen to wait elsewhere.
  struct Unseen {
    Ranks acquitted;                      // may stand in a call elsewhere
    std::size_t acquitted_in = SIZE_MAX;  // index of the view
    std::size_t hinted_in = SIZE_MAX;     // there it cannot be seen for other reasons
    const RankView* hinted = nullptr;
  };
  void LookElsewhere(std::size_t here, const RankView& suspect, Unseen* unseen) const {
    for (const auto& [i, rank] : ranks_.Of(suspect)) {
      const bool is_hidden = may_hide_[i] && rank->activity.is_in_flight();
      const bool is_unseen = is_hidden || rank->activity.is_unknown() || rank->activity.is_quiet();
      if (i == here || !is_unseen || rank->state != RankView::State::kLive ||
          Compare(*rank, suspect) == SameGpu::kNo) {
        continue;
      }
      if (is_hidden || MayStandUnreported(i, *rank, suspect)) {
        unseen->acquitted.push_back(&suspect);
        unseen->acquitted_in = std::min(unseen->acquitted_in, i);
        return;
      }
      if (rank->activity.reason == UnknownReason::kLaunchNotReported || IsExiting(*rank)) continue;
      if (unseen->hinted == nullptr) {
        unseen->hinted = &suspect;
        unseen->hinted_in = i;
      }
    }
  }

  const Link* BestLink(std::size_t here, const RankView* suspect) const;
  bool AcquitNotBegun(std::size_t here, HangFinding* finding) const;
  bool AcquitNotCalled(std::size_t here, Ranks* free, HangFinding* finding) const;
  void Follow(std::size_t here, HangFinding* finding) const;

  // Looks for a path from `at` back to `home` over ranks that wait elsewhere.
  bool FindCircle(std::size_t home, std::size_t at, Links which, std::vector<bool>* visited,
                  std::vector<HangFinding::Elsewhere::Link>* circle) const {
    (*visited)[at] = true;
    for (const Link& link : links_[at]) {
      if (which != Links::kAll && !link.is_certain) continue;
      if (which == Links::kAwaited && link.is_not_awaited) continue;
      circle->push_back({&views_[at], link.suspect});
      if (link.to == home) return true;
      if (is_blocked_[link.to] && !(*visited)[link.to] &&
          FindCircle(home, link.to, which, visited, circle)) {
        return true;
      }
      circle->pop_back();
    }
    return false;
  }

  std::vector<HangFinding::Elsewhere::Link> Circle(std::size_t home, Links which) const {
    std::vector<HangFinding::Elsewhere::Link> circle;
    std::vector<bool> visited(views_.size());
    FindCircle(home, home, which, &visited, &circle);
    return circle;
  }

  const std::vector<CommunicatorView>& views_;
  const RanksOfProcesses& ranks_;
  const Findings& findings_;
  const std::vector<bool>& may_hide_;
  const int64_t hang_after_ns_, now_ns_;
  std::vector<std::vector<Link>> links_;  // of each view
  std::vector<bool> is_blocked_;          // all of its suspects have a link
};

const Link* Follower::BestLink(std::size_t here, const RankView* suspect) const {
  const Link* best = nullptr;
  for (const Link& link : links_[here]) {
    if (link.suspect != suspect) continue;
    if (best == nullptr || (link.is_certain && !best->is_certain)) best = &link;
  }
  return best;
}

void Follower::Apply(std::size_t here, HangFinding* finding) const {
  if (!IsFollowed(findings_[here])) return;
  Ranks free;
  Ranks blocked;
  const Link* first = nullptr;  // a certain one, if there is any
  for (const RankView* suspect : finding->suspects) {
    const Link* found = BestLink(here, suspect);
    (found == nullptr ? free : blocked).push_back(suspect);
    if (found != nullptr && (first == nullptr || !first->is_certain)) first = found;
  }
  if (!free.empty() && (AcquitNotBegun(here, finding) || AcquitNotCalled(here, &free, finding))) {
    return;
  }
  if (first == nullptr) return;
  finding->elsewhere.comm_id = views_[first->to].comm_id;
  finding->elsewhere.blocked = std::move(blocked);
  if (free.empty()) {
    Follow(here, finding);
  } else {
    finding->suspects = std::move(free);
  }
}

// Of those whose GPUs have not begun one may wait where that cannot be seen: then nobody is named.
bool Follower::AcquitNotBegun(std::size_t here, HangFinding* finding) const {
  if (findings_[here]->verdict != HangVerdict::kRankNotBegun) return false;
  for (const RankView* suspect : finding->suspects) {
    if (suspect->state != RankView::State::kLive) continue;
    const std::size_t unseen =
        MayWaitUnseen(ranks_, here, *suspect, finding->detail == HangDetail::kReplay);
    if (unseen == kNowhere) continue;
    finding->elsewhere.is_acquitted = true;
    finding->elsewhere.comm_id = views_[unseen].comm_id;
    return true;
  }
  return false;
}

// Takes those that may stand in an unreported call elsewhere out of the suspects that are free.
bool Follower::AcquitNotCalled(std::size_t here, Ranks* free, HangFinding* finding) const {
  if (findings_[here]->verdict != HangVerdict::kRankNotCalled) return false;
  Unseen there;
  for (const RankView* suspect : *free) {
    if (suspect->state == RankView::State::kLive) LookElsewhere(here, *suspect, &there);
  }
  if (!there.acquitted.empty()) {
    free->erase(
        std::remove_if(free->begin(), free->end(),
                       [&there](const RankView* rank) { return Contains(there.acquitted, rank); }),
        free->end());
    finding->elsewhere.unseen = views_[there.acquitted_in].comm_id;
    finding->elsewhere.unseen_ranks = std::move(there.acquitted);
    if (free->empty()) return finding->elsewhere.is_acquitted = true;
    finding->suspects = *free;
  } else if (there.hinted != nullptr) {
    finding->elsewhere.unseen_ranks = {there.hinted};
    finding->elsewhere.unseen = views_[there.hinted_in].comm_id;
  }
  return false;
}

// All suspects may wait elsewhere: in a circle, or for somebody.
void Follower::Follow(std::size_t here, HangFinding* finding) const {
  finding->elsewhere.circle = Circle(here, Links::kAwaited);
  if (!finding->elsewhere.circle.empty()) {
    finding->verdict = HangVerdict::kCircularWait;
    return;
  }
  const auto out = std::find_if(links_[here].begin(), links_[here].end(), [this](const Link& link) {
    return link.is_certain && !is_blocked_[link.to];
  });
  const bool is_way_out = out != links_[here].end();
  if (!is_way_out && !Circle(here, Links::kCertain).empty()) {
    finding->elsewhere.is_acquitted = finding->elsewhere.is_posted_ahead = true;
  } else if (is_way_out || Circle(here, Links::kAll).empty()) {
    finding->verdict = HangVerdict::kBlockedElsewhere;
    if (is_way_out) finding->elsewhere.comm_id = views_[out->to].comm_id;
    for (const Link& link : links_[here]) {
      if (link.is_certain) finding->elsewhere.waits_in.push_back({link.suspect, link.to});
    }
  }
}

}  // namespace

RanksOfProcesses::RanksOfProcesses(const std::vector<CommunicatorView>& views) {
  for (std::size_t i = 0; i < views.size(); ++i) {
    for (const RankView& rank : views[i].ranks) by_process_[rank.process].push_back({i, &rank});
  }
}

void FollowWaits(const std::vector<CommunicatorView>& views, const RanksOfProcesses& ranks,
                 int64_t hang_after_ns, int64_t now_realtime_ns, Findings* findings) {
  if (std::none_of(findings->begin(), findings->end(), IsFollowed)) return;
  // Two communicators that wait for each other did not begin to at the same time.
  Findings before = *findings;
  std::vector<bool> may_hide(views.size());
  for (std::size_t i = 0; i < views.size(); ++i) {
    if (!before[i]) {
      Conclusion conclusion = Conclude(views[i], hang_after_ns / 2, now_realtime_ns);
      if (!conclusion.queued) before[i] = std::move(conclusion.hang);
      may_hide[i] = conclusion.queued && !conclusion.queued->unreported_op.empty();
    } else if (before[i]->is_queued && before[i]->suspects.empty()) {
      may_hide[i] = !before[i]->queued.unreported_op.empty();
    }
    FindAbsent(views, ranks, i, &before[i]);
    if (!before[i]) before[i] = ConcludeForEnded(views[i], hang_after_ns, now_realtime_ns);
  }
  const Follower follower(views, ranks, before, may_hide, hang_after_ns, now_realtime_ns);
  // Where nobody waits any longer, but ranks did for which others wait now: that is where it began.
  for (bool is_changed = true; is_changed;) {
    is_changed = false;
    for (std::size_t i = 0; i < views.size(); ++i) {
      if (!(*findings)[i]) continue;
      for (const Link& link : follower.LinksOf(i)) {
        const std::optional<HangFinding>& there = before[link.to];
        if ((*findings)[link.to] || !there || !there->waiting.empty()) continue;
        (*findings)[link.to] = there;
        is_changed = true;
      }
    }
  }
  for (std::size_t i = 0; i < views.size(); ++i) {
    if ((*findings)[i]) follower.Apply(i, &*(*findings)[i]);
  }
}

void DropWhatMoves(const std::vector<CommunicatorView>& views, const RanksOfProcesses& ranks,
                   int64_t hang_after_ns, int64_t now_realtime_ns, Findings* findings) {
  const auto comes_to_it = [&](const RankView* suspect) {
    const auto& members = ranks.Of(*suspect);
    return std::any_of(members.begin(), members.end(), [&](const auto& member) {
      return Compare(*member.rank, *suspect) == SameGpu::kYes &&
             MovesBefore(*member.rank, *suspect, hang_after_ns, now_realtime_ns);
    });
  };
  std::vector<bool> moves(views.size());
  bool is_changed = false;
  for (std::size_t i = 0; i < views.size(); ++i) {
    const int64_t moved = views[i].network_moved_realtime_ns;
    moves[i] = moved != 0 && ElapsedNs(now_realtime_ns, moved) < hang_after_ns;
    std::optional<HangFinding>& finding = (*findings)[i];
    if (finding && finding->verdict == HangVerdict::kRankNotBegun &&
        finding->detail == HangDetail::kNone &&
        std::all_of(finding->suspects.begin(), finding->suspects.end(), comes_to_it)) {
      moves[i] = true;
      finding.reset();
    }
    is_changed |= moves[i];
  }
  const auto is_in_one_that_moves = [&](const RankView* rank) {
    const auto& members = ranks.Of(*rank);
    return std::any_of(members.begin(), members.end(), [&](const auto& member) {
      return moves[member.view] && member.rank->activity.is_in_flight() &&
             Compare(*member.rank, *rank) != SameGpu::kNo;
    });
  };
  while (is_changed) {
    is_changed = false;
    for (std::size_t i = 0; i < views.size(); ++i) {
      std::optional<HangFinding>& finding = (*findings)[i];
      if (!finding || moves[i]) continue;
      // Where nobody is suspected any of those that do not wait may be the one.
      Ranks awaited = finding->suspects;
      for (const RankView& rank : views[i].ranks) {
        if (finding->suspects.empty() && !Contains(finding->waiting, &rank)) {
          awaited.push_back(&rank);
        }
      }
      moves[i] = finding->suspects.empty()
                     ? std::any_of(awaited.begin(), awaited.end(), is_in_one_that_moves)
                     : std::all_of(awaited.begin(), awaited.end(), is_in_one_that_moves);
      if (!moves[i]) continue;
      finding.reset();
      is_changed = true;
    }
  }
}

bool AreBehindNccl(const RanksOfProcesses& all, std::size_t here, const Ranks& ranks) {
  return std::any_of(ranks.begin(), ranks.end(), [&](const RankView* rank) {
    const auto& members = all.Of(*rank);
    return std::any_of(members.begin(), members.end(), [&](const auto& member) {
      return member.view != here && Compare(*member.rank, *rank) != SameGpu::kNo &&
             IsBusyBefore(*member.rank, *rank);
    });
  });
}

std::optional<uint64_t> UnseenElsewhere(const std::vector<CommunicatorView>& views,
                                        const RanksOfProcesses& all, std::size_t here,
                                        const Ranks& ranks) {
  for (const RankView* rank : ranks) {
    const std::size_t there = MayWaitUnseen(all, here, *rank, false);
    if (there != kNowhere) return views[there].comm_id;
  }
  return std::nullopt;
}

}  // namespace nccl_pulse
