// One graph of who waits for whom, over all communicators.
//
//   actors   each host thread (a process on one GPU), each launch in flight on a GPU, each call in
//            which ranks meet, and each event after which a process does nothing more
//   stands   what an actor was last known to do (the enum below)
//   arrows   A can't go on before B does its part
//   roots    from all that have waited for long, along the arrows, to those that wait for nobody
//
// A verdict is what is left: if several roots are, the order of the enum Stand says which one may be
// what the others wait for.
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

// The last known state of an actor. Of several roots the first in this order is named: an actor may
// wait, in ways that nobody sees, for one with an earlier stand, and not for one with a later stand.
enum class Stand : uint8_t {
  kMismatched,    // ranks called different things as the same call
  kFailed,        // the driver reports an error from which the context does not recover
  kGone,          // the process has ended while it owed something
  kStopped,       // the process does not run
  kLeft,          // finalized or aborted the communicator while it owed a call
  kExiting,       // the process is in exit() and owes a call
  kBehindOwn,     // the GPU has not begun what it launched, and is behind work that isn't NCCL's
  kAlone,         // the GPU is inside a call of a communicator without other ranks
  kInsideNccl,    // the host has called and launched nothing: it is inside NCCL
  kIdleGpu,       // the GPU runs nothing while others are busy in CUDA graphs
  kBehindReplay,  // behind the others in replays of CUDA graphs
  kNotJoined,     // has not come to a communicator that others create
  kOutside,       // the host is outside NCCL and has not called
  kUnseen,        // nothing is known of the rank
  kUnknown,       // what would tell whether it waits can't be seen
  kInside,        // inside a call, like all others of it
  kMoving,        // makes progress
};

// How sure an arrow is.
enum class Sure : uint8_t {
  kMust,    // a fact: without the other's part it can't go on
  kMay,     // a host with work in flight may wait for it
  kPosted,  // that work may have been posted ahead, with the host elsewhere
  kUnsure,  // whether it waits there is not known: work on another GPU, perhaps, or a call that it may have left
  kPerhaps,  // one of several peers
};

enum class ActorKind : uint8_t { kHost, kGpu, kCall, kEvent, kLeft, kUnseen, kUnknown, kMismatch };

struct Arrow {
  uint32_t to;
  Sure sure;
};

inline constexpr std::size_t kNoView = SIZE_MAX;

struct Actor {
  ActorKind kind{};
  Stand stand{};
  int64_t since_ns = 0;            // when it came to its stand, 0: not known
  std::size_t view = kNoView;      // index; of hosts and events: none
  const RankView* rank = nullptr;  // of a host: one of its ranks; null: of calls and unseen ranks
  uint64_t number = 0;    // of a call, among the collectives; 0: Send and Recv, or a replay
  bool is_start = false;  // it has waited for longer than the threshold
  bool is_queued_start =
      false;  // so has this GPU, and it hasn't begun: a start after kQueuedFactor
  std::vector<Arrow> arrows{};
};

struct WaitGraph {
  std::vector<Actor> actors;

  uint32_t Add(Actor actor) {
    actors.push_back(std::move(actor));
    return static_cast<uint32_t>(actors.size() - 1);
  }
  void Point(uint32_t from, uint32_t to, Sure sure) {
    if (from == to) return;
    // A call has an arrow to each rank that has not come, once: there may be thousands.
    std::vector<Arrow>& arrows = actors[from].arrows;
    if (actors[from].kind != ActorKind::kCall) {
      for (Arrow& arrow : arrows) {
        if (arrow.to != to) continue;
        if (sure < arrow.sure) arrow.sure = sure;
        return;
      }
    }
    arrows.push_back({to, sure});
  }
};

// A set of actors without a way out: one that waits for nobody, or several that wait for each other.
struct Root {
  std::vector<uint32_t> actors;
  bool is_perhaps = true;      // reached by kPerhaps arrows alone, at best
  bool is_waited_for = false;  // by another actor, in NCCL
};

// From all starts. Cost: linear in the arrows.
std::vector<Root> FindRoots(const WaitGraph& graph);

// The shortest circle among `actors` whose arrows are at least as sure as `least`, empty: none.
std::vector<uint32_t> ShortestCircle(const WaitGraph& graph, const std::vector<uint32_t>& actors,
                                     Sure least);

}  // namespace nccl_pulse

#endif  // EXPORTER_DIAGNOSIS_WAITS_GRAPH_H_
