#include "exporter/diagnosis/waits/finding.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "exporter/diagnosis/jobs.h"
#include "metrics/driver_error.h"

namespace nccl_pulse {
namespace {

bool IsEvent(ActorState state) {
  return state == ActorState::kFailed || state == ActorState::kGone ||
         state == ActorState::kStopped;
}

// A root that can be named, or a circle.
struct Candidate {
  ActorState state{};
  std::vector<uint32_t> actors;  // several: a circle
  std::optional<std::size_t> waits_in{};
};

// Rank of a circle among the states: before a host that is outside NCCL.
constexpr ActorState kStateOfCircle = ActorState::kInsideNccl;

// The actors that point to each actor.
using Before = std::vector<std::vector<uint32_t>>;

class Decision {
 public:
  // `actors`: all actors of the job.
  Decision(const std::vector<CommunicatorView>& views, const WaitGraph& graph, const Before& before,
           const std::vector<uint32_t>& actors)
      : views_(views), graph_(graph), before_(before), actors_(actors) {}

  std::vector<Finding> Decide(const std::vector<Root>& roots) {
    for (const Root& root : roots) Sort(root);
    DropVictims();
    const bool is_nobody = candidates_.empty() && has_victim_;
    if (is_nobody || FirstState() == ActorState::kOutside) AddUnseenCauses();
    return candidates_.empty() ? NameFailed(NameNobody()) : Name();
  }

 private:
  const Actor& At(uint32_t id) const { return graph_.actors[id]; }

  // Returns the state of the candidates that are named; kMoving: there are none.
  ActorState FirstState() const {
    ActorState first = ActorState::kMoving;
    for (const Candidate& each : candidates_) first = std::min(first, each.state);
    return first;
  }

  std::vector<Finding> NameNobody() const {
    std::vector<Finding> findings;
    for (const std::size_t view : posted_) Add(CannotTell{view, true}, {view}, &findings);
    for (const uint32_t id : unknown_) {
      for (const std::size_t view : ViewsBefore({id})) Add(CannotTell{view}, {view}, &findings);
    }
    if (!findings.empty()) return findings;
    for (const auto& [view, is_in_replay] : inside_) {
      Add(NoProgress{view, is_in_replay}, {view}, &findings);
    }
    for (const std::size_t view : queued_) Add(QueuedWaits{view}, {view}, &findings);
    return findings;
  }

  // A GPU whose driver reports an error can do no more, whenever that was noticed. So it is named
  // where no other rank is.
  std::vector<Finding> NameFailed(std::vector<Finding> unnamed) {
    for (const uint32_t id : actors_) {
      if (At(id).state == ActorState::kFailed) candidates_.push_back({ActorState::kFailed, {id}});
    }
    if (unnamed.empty() || candidates_.empty()) return unnamed;
    std::vector<Finding> named = NameEvents();
    std::set<std::size_t> views;
    for (const Finding& each : unnamed) views.insert(each.views.begin(), each.views.end());
    named.front().views.assign(views.begin(), views.end());
    return named;
  }

  void Sort(const Root& root) {
    if (root.actors.size() > 1) return SortCircle(root);
    const uint32_t id = root.actors.front();
    const Actor& actor = At(id);
    switch (actor.state) {
      case ActorState::kMoving:
        return;
      case ActorState::kInside:
        has_victim_ |= actor.rank != nullptr && actor.rank->state == RankView::State::kFinalized;
        inside_[actor.view] |= actor.kind == ActorKind::kCall && actor.number == 0;  // a replay
        return;
      case ActorState::kUnknown:
        unknown_.insert(id);
        return;
      case ActorState::kBehindOwn:
        if (!root.is_waited_for) {
          queued_.insert(actor.view);
          return;
        }
        break;
      case ActorState::kInsideNccl:
        if (!root.is_waited_for) {
          inside_[actor.view] |= false;
          return;
        }
        break;
      default:
        break;
    }
    if (!root.is_perhaps) {
      candidates_.push_back({actor.state, {id}});
      return;
    }
    // Each rank that may wait for this root waits for one of several peers, perhaps another.
    for (const std::size_t view : ViewsBefore({id})) inside_[view] |= false;
  }

  void SortCircle(const Root& root) {
    // Handles a circle with an ended process: the others wait for it in the call in which it waited
    // itself.
    const std::size_t before = candidates_.size();
    for (const uint32_t id : root.actors) {
      if (IsEvent(At(id).state)) candidates_.push_back({At(id).state, {id}});
    }
    if (candidates_.size() != before) return;
    std::set<const ProcessSnapshot*> processes;
    std::size_t hosts = 0;
    for (const uint32_t id : root.actors) {
      if (At(id).rank != nullptr) processes.insert(At(id).rank->process);
      hosts += At(id).kind == ActorKind::kHost ? 1 : 0;
    }
    // The actor's own work waits for its host, or for a kernel of the application.
    if (processes.size() == 1 && hosts <= 1) {
      const uint32_t first =
          *std::min_element(root.actors.begin(), root.actors.end(), [this](uint32_t a, uint32_t b) {
            return std::pair(At(a).state, At(a).since_ns) < std::pair(At(b).state, At(b).since_ns);
          });
      Root one = root;
      one.actors = {first};
      return Sort(one);
    }
    if (AddOddHost(root)) return;
    std::vector<uint32_t> circle = ShortestCircle(graph_, root.actors, Sure::kMay);
    if (!circle.empty()) {
      candidates_.push_back({kStateOfCircle, std::move(circle)});
      return;
    }
    const bool is_posted = !ShortestCircle(graph_, root.actors, Sure::kPosted).empty();
    const bool is_unsure = !ShortestCircle(graph_, root.actors, Sure::kUnsure).empty();
    for (const uint32_t id : root.actors) {
      const Actor& actor = At(id);
      // If a call that some ranks may have left closes the circle, hosts in it remain candidates.
      if (actor.kind == ActorKind::kHost && !is_posted && is_unsure) {
        candidates_.push_back({actor.state, {id}});
      }
      if (actor.kind != ActorKind::kGpu) continue;
      if (is_posted) posted_.insert(actor.view);
      if (!is_posted && (!is_unsure || hosts == 0)) inside_[actor.view] |= false;
    }
  }

  // Adds the host of a circle that has left the order of calls that two or more other ranks keep,
  // for example in an exception handler. Returns false if there is none, or several.
  bool AddOddHost(const Root& root) {
    std::vector<uint32_t> odd;
    const auto is_host = [this](uint32_t id) { return At(id).kind == ActorKind::kHost; };
    const auto hosts = std::count_if(root.actors.begin(), root.actors.end(), is_host);
    std::size_t view = kNoView;
    for (const uint32_t host : root.actors) {
      if (!is_host(host)) continue;
      const bool is_missed = hosts == 1 && IsMissedBySeveral(host);
      for (const Arrow& to : At(host).arrows) {
        if (!is_missed && !IsAlone(to.to)) continue;
        if (odd.empty() || odd.back() != host) odd.push_back(host);
        view = At(to.to).view;
      }
    }
    if (odd.size() != 1) return false;
    candidates_.push_back({ActorState::kOutside, std::move(odd), view});
    return true;
  }

  // True if all other ranks, two or more, have not begun the call that the GPU is in.
  bool IsAlone(uint32_t gpu) const {
    return std::any_of(At(gpu).arrows.begin(), At(gpu).arrows.end(), [this](const Arrow& each) {
      const Actor& call = At(each.to);
      const std::size_t missing = call.arrows.size();
      return call.kind == ActorKind::kCall && before_[each.to].size() == 1 && missing > 1 &&
             missing + 1 == static_cast<std::size_t>(views_[call.view].nranks);
    });
  }

  // True if ranks of two or more processes wait in calls for this host.
  bool IsMissedBySeveral(uint32_t host) const {
    std::set<const ProcessSnapshot*> waiting;
    for (const uint32_t call : before_[host]) {
      if (At(call).kind != ActorKind::kCall) continue;
      for (const uint32_t gpu : before_[call]) waiting.insert(At(gpu).rank->process);
    }
    return waiting.size() > 1;
  }

  // Removes hosts whose own work waits for another root: a single host may wait for its work, for
  // example to log a loss.
  void DropVictims() {
    for (std::size_t i = 0; i < candidates_.size();) {
      const uint32_t id = candidates_[i].actors.front();
      const bool is_victim = candidates_[i].state == ActorState::kOutside && LeadsToAnother(id);
      if (is_victim) candidates_.erase(candidates_.begin() + static_cast<std::ptrdiff_t>(i));
      i += is_victim ? 0 : 1;
    }
  }

  bool LeadsToAnother(uint32_t host) const {
    std::vector<uint32_t> next = At(host).unlikely;
    std::set<uint32_t> seen(next.begin(), next.end());
    for (std::size_t at = 0; at < next.size(); ++at) {
      for (const Arrow& arrow : At(next[at]).arrows) {
        if (seen.insert(arrow.to).second) next.push_back(arrow.to);
      }
    }
    return seen.count(host) == 0 &&
           std::any_of(candidates_.begin(), candidates_.end(), [&seen](const Candidate& each) {
             return seen.count(each.actors.front()) != 0;
           });
  }

  std::vector<Finding> Name() {
    const ActorState first = FirstState();
    if (IsEvent(first)) return NameEvents();
    std::vector<Finding> findings;
    NamedRoots named;
    named.state = first;
    for (const Candidate& each : candidates_) {
      if (each.state != first) continue;
      if (each.actors.size() > 1) {
        Add(CircleOfWaits{each.actors}, ViewsOf(each.actors), &findings);
      } else if (At(each.actors.front()).kind == ActorKind::kMismatch) {
        const std::size_t view = At(each.actors.front()).view;
        if (std::none_of(findings.begin(), findings.end(), [view](const Finding& finding) {
              return Get<DifferentCalls>(finding)->view == view;
            })) {
          Add(DifferentCalls{view}, {view}, &findings);
        }
      } else {
        named.actors.insert(named.actors.end(), each.actors.begin(), each.actors.end());
        named.waits_in = each.waits_in;
      }
    }
    if (!named.actors.empty() && findings.empty()) {
      std::vector<std::size_t> before = ViewsBefore(named.actors);
      Add(std::move(named), std::move(before), &findings);
    }
    return findings;
  }

  // Adds causes to which no arrow leads: a GPU behind its own work, or an event, if it is about as
  // old as the job's oldest wait. A host outside NCCL may wait for it in a way that can't be seen,
  // and so may a rank that aborted. An event that came before a host's last calls is no cause.
  void AddUnseenCauses() {
    int64_t oldest_ns = INT64_MAX;
    int64_t called_ns = 0;
    for (const uint32_t id : actors_) {
      if (At(id).is_start) oldest_ns = std::min(oldest_ns, At(id).since_ns);
    }
    for (const Candidate& each : candidates_) {
      if (each.state != ActorState::kOutside) continue;
      called_ns = std::max(called_ns, At(each.actors.front()).since_ns);
    }
    for (const uint32_t id : actors_) {
      const Actor& actor = At(id);
      const int64_t later_ns = ElapsedNs(actor.since_ns, oldest_ns);
      const bool is_gpu = actor.kind == ActorKind::kGpu && actor.state == ActorState::kBehindOwn &&
                          actor.arrows.empty() && actor.rank->state == RankView::State::kLive &&
                          later_ns < kOtherHostNs;
      const bool is_event = actor.kind == ActorKind::kEvent && actor.view != kNoView &&
                            later_ns < kCauseSlackNs &&
                            ElapsedNs(called_ns, actor.since_ns) < kCauseSlackNs;
      if (is_gpu || is_event) candidates_.push_back({actor.state, {id}});
    }
  }

  // Names the first of several events as the cause; the others followed from it.
  std::vector<Finding> NameEvents() {
    std::vector<uint32_t> events;
    NamedRoots named;
    for (const Candidate& each : candidates_) {
      if (!IsEvent(each.state)) continue;
      events.push_back(each.actors.front());
    }
    std::sort(events.begin(), events.end(), [this](uint32_t a, uint32_t b) {
      return std::pair(At(a).since_ns, a) < std::pair(At(b).since_ns, b);
    });
    const Actor& earliest = At(events.front());
    const Actor* first = &earliest;
    for (const uint32_t id : events) {  // events at about the same time: by the order of states
      const Actor& actor = At(id);
      const bool is_as_early =
          ElapsedNs(actor.since_ns, earliest.since_ns) <= Slack(earliest, actor);
      const bool is_error = actor.state == ActorState::kFailed;  // noticed late
      if (is_as_early && !is_error && actor.state < first->state) first = &actor;
    }
    for (const uint32_t id : events) {
      const Actor& actor = At(id);
      if (actor.state != ActorState::kFailed || actor.rank->is_failed_by_peer) continue;
      // The earliest event may be the end of a process whose memory kernels of its peers used.
      const bool may_follow = earliest.state == ActorState::kGone &&
                              MayFollowPeersEnd(actor.rank->failed->driver_error);
      if (!may_follow && ElapsedNs(actor.since_ns, earliest.since_ns) <= kSameErrorNs) {
        first = &actor;
        break;
      }
    }
    named.state = first->state;
    for (const uint32_t id : events) {
      // An error that may have come over a link is a consequence of an error that cannot have.
      const bool is_victim = At(id).rank->is_failed_by_peer && !first->rank->is_failed_by_peer;
      const bool is_same = At(id).state == first->state && !is_victim &&
                           ElapsedNs(At(id).since_ns, first->since_ns) <= Slack(*first, At(id));
      (is_same ? named.actors : named.followed).push_back(id);
    }
    for (const uint32_t id : named.actors) {
      for (const uint32_t from : before_[id]) {
        const bool is_known = std::find(events.begin(), events.end(), from) != events.end();
        if (IsEvent(At(from).state) && !is_known) named.followed.push_back(from);
      }
    }
    std::vector<std::size_t> before = ViewsBefore(named.actors);
    return {Finding{std::move(named), std::move(before)}};
  }

  static int64_t Slack(const Actor& a, const Actor& b) {
    if (a.state == ActorState::kFailed) return kSameErrorNs;
    // Events other than ends are found by polling, up to a second late.
    const bool are_ends = a.state == ActorState::kGone && b.state == ActorState::kGone;
    const ProcessSnapshot& first = *a.rank->process;
    const ProcessSnapshot& second = *b.rank->process;
    if (!are_ends && first.hostname != second.hostname) return kOtherHostNs;
    return ClockSlackNs(first, second);
  }

  // Returns the communicators whose ranks wait directly for one of these actors: a GPU's own
  // communicator, else the communicators in which an actor points to it, if necessary through
  // hosts.
  std::vector<std::size_t> ViewsBefore(const std::vector<uint32_t>& actors) const {
    std::set<std::size_t> views;
    std::set<uint32_t> seen(actors.begin(), actors.end());
    std::vector<uint32_t> next = actors;
    for (std::size_t at = 0; at < next.size(); ++at) {
      const Actor& actor = At(next[at]);
      const bool is_unawaited = actor.kind == ActorKind::kEvent && actor.view != kNoView;
      if (actor.kind == ActorKind::kGpu || is_unawaited) views.insert(actor.view);
      if (actor.kind == ActorKind::kGpu) continue;
      for (const uint32_t from : before_[next[at]]) {
        if (At(from).view != kNoView) {
          views.insert(At(from).view);
        } else if (seen.insert(from).second) {
          next.push_back(from);
        }
      }
    }
    return {views.begin(), views.end()};
  }

  std::vector<std::size_t> ViewsOf(const std::vector<uint32_t>& actors) const {
    std::set<std::size_t> views;
    for (const uint32_t id : actors) {
      if (At(id).view != kNoView) views.insert(At(id).view);
    }
    return {views.begin(), views.end()};
  }

  template <typename What>
  void Add(What what, std::vector<std::size_t> views, std::vector<Finding>* findings) const {
    findings->push_back({std::move(what), std::move(views)});
  }

  const std::vector<CommunicatorView>& views_;
  const WaitGraph& graph_;
  const Before& before_;
  const std::vector<uint32_t>& actors_;
  std::vector<Candidate> candidates_;
  std::map<std::size_t, bool> inside_;  // views with ranks inside a call; true: inside a replay
  std::set<uint32_t> unknown_;          // actors
  std::set<std::size_t> queued_, posted_;
  bool has_victim_ = false;  // a rank that aborted while it waited, for an unknown actor
};

}  // namespace

std::vector<JobFindings> FindWaits(const std::vector<CommunicatorView>& views, const Waits& waits) {
  Jobs jobs(views);
  const auto job_of = [&jobs](const Actor& actor) {
    return actor.view != kNoView ? jobs.OfView(actor.view) : jobs.OfProcess(actor.rank->process);
  };
  std::map<std::size_t, JobFindings> found;
  for (std::size_t i = 0; i < views.size(); ++i) found[jobs.OfView(i)].views.push_back(i);
  const std::vector<Actor>& actors = waits.graph.actors;
  Before before(actors.size());
  std::map<std::size_t, std::vector<uint32_t>> actors_of;  // by job
  for (uint32_t i = 0; i < actors.size(); ++i) {
    actors_of[job_of(actors[i])].push_back(i);
    for (const Arrow& arrow : actors[i].arrows) before[arrow.to].push_back(i);
  }
  std::map<std::size_t, std::vector<Root>> roots;  // likewise
  for (Root& root : FindRoots(waits.graph)) {
    roots[job_of(actors[root.actors.front()])].push_back(std::move(root));
  }
  for (const auto& [job, of_job] : roots) {
    found[job].findings = Decision(views, waits.graph, before, actors_of[job]).Decide(of_job);
  }
  std::vector<JobFindings> all;
  all.reserve(found.size());
  for (auto& [job, findings] : found) all.push_back(std::move(findings));
  return all;
}

}  // namespace nccl_pulse
