#include "exporter/diagnosis/waits/graph.h"

#include <algorithm>
#include <deque>
#include <unordered_map>
#include <unordered_set>

namespace nccl_pulse {
namespace {

constexpr uint32_t kNone = UINT32_MAX;

// The best way to reach an actor from any start: with a kPerhaps arrow, or without.
enum class Reach : uint8_t { kNone, kPerhaps, kSure };

std::vector<Reach> ReachFromStarts(const WaitGraph& graph, bool with_queued) {
  std::vector<Reach> reach(graph.actors.size(), Reach::kNone);
  std::deque<uint32_t> next;
  for (uint32_t i = 0; i < graph.actors.size(); ++i) {
    if (!graph.actors[i].is_start) continue;
    if (graph.actors[i].is_queued_start && !with_queued) continue;
    reach[i] = Reach::kSure;
    next.push_back(i);
  }
  while (!next.empty()) {
    const uint32_t at = next.front();
    next.pop_front();
    for (const Arrow& arrow : graph.actors[at].arrows) {
      const Reach by = arrow.sure == Sure::kPerhaps ? Reach::kPerhaps : Reach::kSure;
      const Reach reached = std::min(reach[at], by);
      if (reached <= reach[arrow.to]) continue;
      reach[arrow.to] = reached;
      next.push_back(arrow.to);
    }
  }
  return reach;
}

// Tarjan's strongly connected components, without recursion: chains are as long as a job has ranks.
class Components {
 public:
  Components(const WaitGraph& graph, const std::vector<Reach>& reach)
      : graph_(graph), index_(graph.actors.size(), kNone), low_(index_), of(index_) {
    for (uint32_t i = 0; i < graph.actors.size(); ++i) {
      if (reach[i] != Reach::kNone && index_[i] == kNone) Visit(i);
    }
  }

 private:
  struct Frame {
    uint32_t actor;
    std::size_t arrow;
  };

  void Visit(uint32_t first) {
    std::vector<Frame> frames;
    const auto enter = [this, &frames](uint32_t actor) {
      index_[actor] = low_[actor] = next_++;
      stack_.push_back(actor);
      frames.push_back({actor, 0});
    };
    enter(first);
    while (!frames.empty()) {
      Frame& frame = frames.back();
      const uint32_t at = frame.actor;
      const std::vector<Arrow>& arrows = graph_.actors[at].arrows;
      if (frame.arrow < arrows.size()) {
        const uint32_t to = arrows[frame.arrow++].to;
        if (index_[to] == kNone) {
          enter(to);
        } else if (of[to] == kNone) {
          low_[at] = std::min(low_[at], index_[to]);
        }
        continue;
      }
      frames.pop_back();
      if (!frames.empty()) {
        low_[frames.back().actor] = std::min(low_[frames.back().actor], low_[at]);
      }
      if (low_[at] != index_[at]) continue;
      for (uint32_t member = kNone; member != at;) {
        member = stack_.back();
        stack_.pop_back();
        of[member] = count;
      }
      ++count;
    }
  }

  const WaitGraph& graph_;
  std::vector<uint32_t> index_, low_;
  std::vector<uint32_t> stack_;
  uint32_t next_ = 0;

 public:
  std::vector<uint32_t> of;  // by actor
  uint32_t count = 0;
};

}  // namespace

std::vector<Root> FindRoots(const WaitGraph& graph) {
  const std::vector<Reach> reach = ReachFromStarts(graph, true);
  const std::vector<Reach> reach_in_nccl = ReachFromStarts(graph, false);
  const Components components(graph, reach);
  std::vector<bool> has_way_out(components.count);
  std::vector<bool> is_waited_for(components.count);
  for (uint32_t i = 0; i < graph.actors.size(); ++i) {
    if (reach[i] == Reach::kNone) continue;
    for (const Arrow& arrow : graph.actors[i].arrows) {
      const uint32_t from = components.of[i];
      const uint32_t to = components.of[arrow.to];
      if (from == to) continue;
      has_way_out[from] = true;
      if (reach_in_nccl[i] != Reach::kNone) is_waited_for[to] = true;
    }
  }
  std::vector<Root> roots;
  std::unordered_map<uint32_t, std::size_t> root_of;  // by component
  for (uint32_t i = 0; i < graph.actors.size(); ++i) {
    if (reach[i] == Reach::kNone || has_way_out[components.of[i]]) continue;
    const auto [found, is_new] = root_of.try_emplace(components.of[i], roots.size());
    if (is_new) roots.emplace_back();
    Root& root = roots[found->second];
    root.actors.push_back(i);
    root.is_perhaps &= reach[i] == Reach::kPerhaps;
    root.is_waited_for = is_waited_for[components.of[i]];
  }
  return roots;
}

std::vector<uint32_t> ShortestCircle(const WaitGraph& graph, const std::vector<uint32_t>& actors,
                                     Sure least) {
  const std::unordered_set<uint32_t> inside(actors.begin(), actors.end());
  std::vector<uint32_t> best;
  for (const uint32_t home : actors) {
    if (graph.actors[home].kind == ActorKind::kCall)
      continue;                                   // one of its hosts or GPUs is also on it
    std::unordered_map<uint32_t, uint32_t> from;  // breadth first
    std::deque<uint32_t> next{home};
    bool is_closed = false;
    while (!next.empty() && !is_closed) {
      const uint32_t at = next.front();
      next.pop_front();
      for (const Arrow& arrow : graph.actors[at].arrows) {
        if (arrow.sure > least || inside.count(arrow.to) == 0) continue;
        if (!from.try_emplace(arrow.to, at).second) continue;
        if (arrow.to == home) {
          is_closed = true;
          break;
        }
        next.push_back(arrow.to);
      }
    }
    if (!is_closed) continue;
    std::vector<uint32_t> circle{home};
    for (uint32_t at = from.at(home); at != home; at = from.at(at)) circle.push_back(at);
    std::reverse(circle.begin() + 1, circle.end());
    if (best.empty() || circle.size() < best.size()) best = std::move(circle);
    // Short enough to be described: two communicators used in opposite order, for each a GPU, the
    // call, and the host that has not made it.
    constexpr std::size_t kShortest = 6;
    if (best.size() <= kShortest) break;
  }
  return best;
}

}  // namespace nccl_pulse
