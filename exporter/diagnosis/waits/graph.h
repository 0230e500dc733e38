// WaitGraph is the graph of waits over all communicators.
//
//   actors   host threads (a process on one GPU), a rank's launches in flight on its GPU, calls in
//            which ranks meet, and events after which a process does nothing more
//   states   what an actor was last known to do (enum ActorState)
//   arrows   A ──► B: A can't continue before B does its part
//   roots    actors without arrows, found by following the arrows from all actors that have waited
//            for long
//
// The verdict is about the root. If several roots remain, the order of the enum ActorState decides
// which one the others may be waiting for.
//
//   GPU in AllReduce #106 ──► call #106 ──► host of rank 2, which has not called it
//                                      └──► GPU of rank 3, which has launched and not begun it
//   host of rank 2 ┄┄► GPU of rank 2 in Recv ──► ...            (it may wait for its own work)
//
// docs/detection.md explains the rules. arrows.h builds the graph from facts, finding.h reads it.
//
// Thread: plain data; points into the views.
#ifndef EXPORTER_DIAGNOSIS_WAITS_GRAPH_H_
#define EXPORTER_DIAGNOSIS_WAITS_GRAPH_H_

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "exporter/diagnosis/facts/rank_view.h"

namespace nccl_pulse {

// The last known state of an actor. If there are several roots, the first in this order is named:
// an actor may have an invisible wait for an actor with an earlier state, but not with a later one.
enum class ActorState : uint8_t {
  kMismatched,    // ranks made different calls with the same number
  kFailed,        // the driver reports an error from which the context does not recover
  kGone,          // the process ended, and others wait for it
  kStopped,       // the process is stopped
  kLeft,          // finalized or aborted the communicator while it owed a call
  kExiting,       // the process is in exit() and owes a call
  kBehindOwn,     // the GPU has not begun a launch, and is behind work other than NCCL's
  kAlone,         // the GPU is inside a call that all other ranks have joined
  kInsideNccl,    // the host is inside NCCL: it has called, but not launched
  kIdleGpu,       // the GPU runs nothing while others are busy in CUDA graphs
  kBehindReplay,  // behind the others in replays of CUDA graphs
  kOutside,       // the host is outside NCCL and has not called
  kUnseen,        // nothing is known of the rank
  kUnknown,       // not visible whether it waits
  kInside,        // inside a call, like all others of it
  kMoving,        // makes progress
};

// How certain an arrow is.
enum class Sure : uint8_t {
  kMust,        // a fact: it can't continue without the other's part
  kMay,         // a host with work in flight may wait for it
  kPosted,      // as kMay, but the work may have been posted ahead while the host is elsewhere
  kUnsure,      // not known: the work may be on another GPU, or the call may be over
  kUnlessSent,  // as kMust, unless the network has lost a Send that the other has made
  kPerhaps,     // one of several peers
};

enum class ActorKind : uint8_t { kHost, kGpu, kCall, kEvent, kLeft, kUnseen, kUnknown, kMismatch };

struct Arrow {
  uint32_t to;
  Sure sure;
};

inline constexpr std::size_t kNoView = SIZE_MAX;

struct Actor {
  ActorKind kind{};
  ActorState state{};
  int64_t since_ns = 0;            // begin of its state; 0: not known
  std::size_t view = kNoView;      // index; kNoView: hosts, and events that ranks wait for in NCCL
  const RankView* rank = nullptr;  // of a host: any of its ranks; null for calls and unseen ranks
  uint64_t number = 0;             // of a call, among the collectives; 0: of a replay
  bool is_start = false;           // has waited for longer than the threshold
  bool is_queued_start = false;    // is_start of a GPU that has not begun (kQueuedFactor, arrows.h)
  std::vector<Arrow> arrows{};
  // For a host: GPUs with its work in flight for which it probably doesn't wait, since another host
  // with the same work in flight has continued to the same point of the program.
  std::vector<uint32_t> unlikely{};
};

struct WaitGraph {
  std::vector<Actor> actors;

  uint32_t Add(Actor actor) {
    actors.push_back(std::move(actor));
    return static_cast<uint32_t>(actors.size() - 1);
  }
  void Point(uint32_t from, uint32_t to, Sure sure) {
    if (from == to) return;
    // A call, or a host that connects, has an arrow to each of thousands of ranks, so these aren't
    // searched. A second kPerhaps arrow to an actor has no effect.
    std::vector<Arrow>& arrows = actors[from].arrows;
    if (actors[from].kind != ActorKind::kCall && sure != Sure::kPerhaps) {
      for (Arrow& arrow : arrows) {
        if (arrow.to != to) continue;
        if (sure < arrow.sure) arrow.sure = sure;
        return;
      }
    }
    arrows.push_back({to, sure});
  }
};

// A set of actors without an arrow out of it: an actor that waits for none, or several that wait
// for each other.
struct Root {
  std::vector<uint32_t> actors;
  bool is_perhaps = true;      // every path to it has a kPerhaps arrow
  bool is_waited_for = false;  // another actor waits for it in NCCL
};

// Returns the roots reachable from actors with is_start. Cost: linear in the arrows.
std::vector<Root> FindRoots(const WaitGraph& graph);

// Returns the shortest circle among `actors` with arrows at least as certain as `least`; empty if
// none.
std::vector<uint32_t> ShortestCircle(const WaitGraph& graph, const std::vector<uint32_t>& actors,
                                     Sure least);

}  // namespace nccl_pulse

#endif  // EXPORTER_DIAGNOSIS_WAITS_GRAPH_H_
