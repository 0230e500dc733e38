#include "exporter/diagnosis/waits/finding.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "exporter/diagnosis/jobs.h"
#include "exporter/diagnosis/waits/usual_wait.h"

namespace nccl_pulse {
namespace {

// Events of one host are seen this exactly, those of several hosts by different clocks.
constexpr int64_t kSameHostNs = 100000000;
constexpr int64_t kOtherHostNs = 1000000000;
// Drivers' errors are noticed within a second, on clocks that differ.
constexpr int64_t kSameErrorNs = 3000000000;

bool IsEvent(Stand stand) {
  return stand == Stand::kFailed || stand == Stand::kGone || stand == Stand::kStopped;
}

// A root that can be named, or a circle.
struct Candidate {
  Stand stand{};
  std::vector<uint32_t> actors;
  bool is_circle = false;
};

// A circle is named before a host that is outside NCCL.
constexpr Stand kStandOfCircle = Stand::kInsideNccl;

// Which actors point to each, and which are of each view.
struct Index {
  Index(const std::vector<CommunicatorView>& views, const WaitGraph& graph)
      : before(graph.actors.size()), of_view(views.size()) {
    for (uint32_t i = 0; i < graph.actors.size(); ++i) {
      const Actor& actor = graph.actors[i];
      if (actor.view != kNoView) of_view[actor.view].push_back(i);
      for (const Arrow& arrow : actor.arrows) before[arrow.to].push_back(i);
    }
  }

  std::vector<std::vector<uint32_t>> before, of_view;
};

class Decision {
 public:
  Decision(const std::vector<CommunicatorView>& views, const Waits& waits, const Index& index,
           int64_t now_ns)
      : views_(views), waits_(waits), index_(index), now_ns_(now_ns) {}

  std::vector<Finding> Decide(const std::vector<Root>& roots) {
    for (const Root& root : roots) Sort(root);
    if (!candidates_.empty()) return Name();
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

 private:
  const Actor& At(uint32_t id) const { return waits_.graph.actors[id]; }

  void Sort(const Root& root) {
    if (root.actors.size() > 1) return SortCircle(root);
    const uint32_t id = root.actors.front();
    const Actor& actor = At(id);
    switch (actor.stand) {
      case Stand::kMoving:
        return;
      case Stand::kInside:
        inside_[actor.view] |= IsReplay(actor);
        return;
      case Stand::kUnknown:
        unknown_.insert(id);
        return;
      case Stand::kBehindOwn:
        if (!root.is_waited_for) {
          queued_.insert(actor.view);
          return;
        }
        break;
      case Stand::kInsideNccl:
        if (!root.is_waited_for) {
          inside_[actor.view] |= false;
          return;
        }
        break;
      default:
        break;
    }
    if (root.is_perhaps) return AddPerhaps(id);
    candidates_.push_back({actor.stand, {id}, false});
  }

  bool IsReplay(const Actor& actor) const {
    return actor.kind == ActorKind::kCall && actor.number == 0;
  }

  // Nobody is named: the ranks that may wait for it wait for one of several.
  void AddPerhaps(uint32_t id) {
    for (const std::size_t view : ViewsBefore({id})) inside_[view] |= false;
  }

  void SortCircle(const Root& root) {
    std::set<const ProcessSnapshot*> processes;
    std::size_t hosts = 0;
    for (const uint32_t id : root.actors) {
      if (At(id).rank != nullptr) processes.insert(At(id).rank->process);
      hosts += At(id).kind == ActorKind::kHost ? 1 : 0;
    }
    // Its own work waits for its host, or for a kernel of its own.
    if (processes.size() == 1 && hosts <= 1) {
      const uint32_t first =
          *std::min_element(root.actors.begin(), root.actors.end(), [this](uint32_t a, uint32_t b) {
            return std::pair(At(a).stand, At(a).since_ns) < std::pair(At(b).stand, At(b).since_ns);
          });
      Root one = root;
      one.actors = {first};
      return Sort(one);
    }
    std::vector<uint32_t> circle = ShortestCircle(waits_.graph, root.actors, Sure::kMay);
    if (!circle.empty()) {
      candidates_.push_back({kStandOfCircle, std::move(circle), true});
      return;
    }
    const bool is_posted = !ShortestCircle(waits_.graph, root.actors, Sure::kPosted).empty();
    const bool is_of_gpus = !ShortestCircle(waits_.graph, root.actors, Sure::kUnsure).empty();
    for (const uint32_t id : root.actors) {
      const Actor& actor = At(id);
      // Only work that may be on another GPU closes the circle: that acquits no host.
      if (actor.kind == ActorKind::kHost && !is_posted && is_of_gpus) {
        candidates_.push_back({actor.stand, {id}, false});
      }
      if (actor.kind != ActorKind::kGpu) continue;
      if (is_posted) posted_.insert(actor.view);
      if (!is_posted && !is_of_gpus) inside_[actor.view] |= false;
    }
  }

  std::vector<Finding> Name() {
    Stand first = Stand::kMoving;
    for (const Candidate& each : candidates_) first = std::min(first, each.stand);
    if (IsEvent(first)) return NameEvents();
    std::vector<Finding> findings;
    NamedRoots named;
    named.stand = first;
    for (const Candidate& each : candidates_) {
      if (each.stand != first) continue;
      if (each.is_circle) {
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
      }
    }
    if (!named.actors.empty() && findings.empty()) {
      std::vector<std::size_t> before = ViewsBefore(named.actors);
      Add(std::move(named), std::move(before), &findings);
    }
    return findings;
  }

  // Of several events the first is the cause, and the others followed.
  std::vector<Finding> NameEvents() {
    std::vector<uint32_t> events;
    NamedRoots named;
    for (const Candidate& each : candidates_) {
      if (!IsEvent(each.stand)) continue;
      events.push_back(each.actors.front());
    }
    std::sort(events.begin(), events.end(), [this](uint32_t a, uint32_t b) {
      return std::pair(At(a).since_ns, a) < std::pair(At(b).since_ns, b);
    });
    const Actor* first = &At(events.front());
    for (const uint32_t id : events) {  // where times can't be told apart, by the order of stands
      const bool is_as_early = ElapsedNs(At(id).since_ns, At(events.front()).since_ns) <=
                               Slack(At(events.front()), At(id), false);
      if (is_as_early && At(id).stand < first->stand) first = &At(id);
    }
    for (const uint32_t id : events) {
      if (At(id).stand == Stand::kFailed && !At(id).rank->is_failed_by_peer &&
          ElapsedNs(At(id).since_ns, At(events.front()).since_ns) <= kSameErrorNs) {
        first = &At(id);
        break;
      }
    }
    named.stand = first->stand;
    for (const uint32_t id : events) {
      // An error that may have come over a link followed the one that did not.
      const bool is_victim = At(id).rank->is_failed_by_peer && !first->rank->is_failed_by_peer;
      const bool is_same =
          At(id).stand == first->stand && !is_victim &&
          ElapsedNs(At(id).since_ns, first->since_ns) <= Slack(*first, At(id), true);
      (is_same ? named.actors : named.followed).push_back(id);
    }
    std::vector<Finding> findings;
    std::vector<std::size_t> before = ViewsBefore(named.actors);
    Add(std::move(named), std::move(before), &findings);
    return findings;
  }

  static int64_t Slack(const Actor& a, const Actor& b, bool are_of_one_kind) {
    if (a.stand == Stand::kFailed) return kSameErrorNs;
    // Hosts and containers are paused as a whole, and then seen one after the other.
    if (are_of_one_kind && a.stand == Stand::kStopped) return INT64_MAX;
    return a.rank->process->hostname == b.rank->process->hostname ? kSameHostNs : kOtherHostNs;
  }

  // Communicators whose ranks wait directly for one of these: on a GPU its own, else those in which
  // somebody points to it, over hosts if need be.
  std::vector<std::size_t> ViewsBefore(const std::vector<uint32_t>& actors) const {
    std::set<std::size_t> views;
    std::set<uint32_t> seen(actors.begin(), actors.end());
    std::vector<uint32_t> next = actors;
    for (std::size_t at = 0; at < next.size(); ++at) {
      const Actor& actor = At(next[at]);
      if (actor.kind == ActorKind::kGpu) views.insert(actor.view);
      if (actor.kind == ActorKind::kGpu) continue;
      for (const uint32_t from : index_.before[next[at]]) {
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
    Finding finding;
    finding.what = std::move(what);
    finding.views = std::move(views);
    CompareWithPast(&finding);
    findings->push_back(std::move(finding));
  }

  // The wait of a communicator is usual if each of its waiting ranks has waited as long before. It is
  // no measure for what can't end, nor for replays.
  void CompareWithPast(Finding* finding) const {
    uint64_t least_ns = UINT64_MAX;
    finding->can_end = CanEnd(*finding);
    bool is_usual = !finding->views.empty() && finding->can_end;
    finding->since_ns = INT64_MAX;
    for (const std::size_t view : finding->views) {
      int64_t since_ns = INT64_MAX;
      uint64_t before_ns = UINT64_MAX;
      for (const uint32_t id : index_.of_view[view]) {
        if (At(id).is_start) since_ns = std::min(since_ns, At(id).since_ns);
      }
      for (const uint32_t id : index_.of_view[view]) {
        if (!At(id).is_start || At(id).rank == nullptr) continue;
        before_ns = std::min(before_ns, LongestBefore(*At(id).rank, view, since_ns));
      }
      finding->since_ns = std::min(finding->since_ns, since_ns);
      if (since_ns == INT64_MAX) continue;  // its ranks wait for less than the threshold
      least_ns = std::min(least_ns, before_ns);
      is_usual &= before_ns != UINT64_MAX && IsUsual(ElapsedNs(now_ns_, since_ns), before_ns);
    }
    if (finding->since_ns == INT64_MAX) finding->since_ns = now_ns_;
    finding->longest_wait_before_ns = least_ns == UINT64_MAX ? 0 : least_ns;
    finding->is_usual = is_usual && least_ns != UINT64_MAX;
  }

  bool CanEnd(const Finding& finding) const {
    if (Get<DifferentCalls>(finding) != nullptr) return false;
    // Somebody has not survived this wait.
    for (const std::size_t view : finding.views) {
      for (const Member& each : waits_.views[view].members) {
        if (!each.is_live() && each.is_in_flight()) return false;
      }
    }
    const auto* named = Get<NamedRoots>(finding);
    return named == nullptr ||
           (named->stand != Stand::kExiting && named->stand != Stand::kBehindReplay &&
            named->stand != Stand::kIdleGpu && named->stand != Stand::kLeft &&
            !IsEvent(named->stand));
  }

  uint64_t LongestBefore(const RankView& rank, std::size_t view, int64_t since_ns) const {
    const RankView* here = views_[view].Find(rank.rank());
    return LongestWaitBefore(here != nullptr && here->process == rank.process ? *here : rank,
                             since_ns);
  }

  const std::vector<CommunicatorView>& views_;
  const Waits& waits_;
  const Index& index_;
  const int64_t now_ns_;
  std::vector<Candidate> candidates_;
  std::map<std::size_t, bool> inside_;  // views, and whether in a replay
  std::set<uint32_t> unknown_;          // actors
  std::set<std::size_t> queued_, posted_;
};

}  // namespace

std::vector<JobFindings> FindWaits(const std::vector<CommunicatorView>& views, const Waits& waits,
                                   int64_t now_realtime_ns) {
  Jobs jobs(views);
  std::map<std::size_t, JobFindings> found;
  for (std::size_t i = 0; i < views.size(); ++i) found[jobs.OfView(i)].views.push_back(i);
  std::map<std::size_t, std::vector<Root>> roots;
  for (Root& root : FindRoots(waits.graph)) {
    const Actor& first = waits.graph.actors[root.actors.front()];
    const std::size_t job =
        first.view != kNoView ? jobs.OfView(first.view) : jobs.OfProcess(first.rank->process);
    roots[job].push_back(std::move(root));
  }
  const Index index(views, waits.graph);
  for (const auto& [job, of_job] : roots) {
    found[job].findings = Decision(views, waits, index, now_realtime_ns).Decide(of_job);
  }
  std::vector<JobFindings> all;
  all.reserve(found.size());
  for (auto& [job, findings] : found) all.push_back(std::move(findings));
  return all;
}

}  // namespace nccl_pulse
