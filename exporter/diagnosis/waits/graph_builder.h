// GraphBuilder holds the graph of waits while it is built, and the facts about actors that the
// rules for arrows need. The rules are functions at the end of this header.
//
// Thread: any. Points into the views.
#ifndef EXPORTER_DIAGNOSIS_WAITS_GRAPH_BUILDER_H_
#define EXPORTER_DIAGNOSIS_WAITS_GRAPH_BUILDER_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "exporter/diagnosis/waits/arrows.h"

namespace nccl_pulse {

// Limit of followed work per GPU, and of communicators in which others wait for a host. Jobs have a
// few, but a hostile endpoint can report any number.
inline constexpr std::size_t kMostFollowed = 32;

struct MemberIndex {
  std::size_t view, at;  // index of the communicator's view, and of the rank in it
};

// A host thread: a process on one GPU.
struct HostThread {
  uint32_t host = kNoActor;   // actor of the thread
  uint32_t event = kNoActor;  // actor of its end, stop or failure; kNoActor: none needed so far
  int64_t ended_wait_ns = 0;  // when a member ended, or was aborted, during a wait; 0: none
  std::vector<MemberIndex> members;
  std::vector<std::size_t> owes_in;  // views with calls in which others wait for this host
  // Members with work in flight (the oldest, by view), and members with unseen work; at most
  // kMostFollowed of each.
  std::vector<MemberIndex> busy, unseen;
  // The oldest launch of a member that has completed work recently.
  int64_t first_moving_ns = INT64_MAX;
  int64_t last_live_ns = 0;        // last launch, or creation, of a live member
  int64_t completed_ns = 0;        // last completion of a live member
  int64_t awaited_ns = INT64_MAX;  // begin of the first wait for `event`
};

class GraphBuilder {
 public:
  // Adds all hosts, and all launches in flight. Rules add the other actors when an arrow points to
  // them.
  GraphBuilder(const std::vector<CommunicatorView>& views, int64_t now_ns);
  Waits Take() { return std::move(waits_); }

  int64_t now_ns() const { return now_ns_; }
  int64_t Age(int64_t since_ns) const { return since_ns == 0 ? 0 : ElapsedNs(now_ns_, since_ns); }
  // True if a wait on a communicator has reached its threshold.
  bool IsLong(std::size_t view, int64_t since_ns) const {
    return since_ns != 0 && Age(since_ns) >= views_[view].hang_after_ns;
  }
  // True if a wait is long enough to be followed: half of the threshold, because ranks that wait
  // for each other don't begin at the same time.
  bool IsHalf(std::size_t view, int64_t since_ns) const {
    return since_ns != 0 && Age(since_ns) >= views_[view].hang_after_ns / 2;
  }

  const std::vector<CommunicatorView>& views() const { return views_; }
  const CommunicatorView& view(std::size_t i) const { return views_[i]; }
  ViewWaits& waits(std::size_t i) { return waits_.views[i]; }
  const Member& member(const MemberIndex& at) const { return waits_.views[at.view].members[at.at]; }
  // True if each launch is one exchange of all ranks, so that launches are compared like
  // collectives.
  bool counts_launches(std::size_t i) const { return counts_launches_[i]; }
  // True if all seen ranks wait, and further ranks are expected.
  bool DoAllSeenWait(std::size_t i) const;

  const std::vector<HostThread>& threads() const { return threads_; }
  HostThread& ThreadOf(const RankView& rank) { return threads_[thread_of_.at(&rank)]; }
  const std::vector<std::size_t>& ThreadsOf(const ProcessSnapshot* process) const {
    return threads_of_.at(process);
  }
  // True if the rank left a communicator while it waited, after others had begun to wait for it. A
  // rank that left earlier may be the reason for their wait.
  bool LeftWaiting(const RankView& rank, int64_t wait_began_ns) {
    const int64_t ended_ns = ThreadOf(rank).ended_wait_ns;
    return ended_ns != 0 && ended_ns >= wait_began_ns;
  }
  // Notes that others wait for the rank's host in a call of this communicator.
  void Owe(const RankView& rank, std::size_t view);

  const std::vector<Actor>& actors() const { return waits_.graph.actors; }
  Actor& actor(uint32_t id) { return waits_.graph.actors[id]; }
  uint32_t Add(Actor actor) { return waits_.graph.Add(std::move(actor)); }
  void Point(uint32_t from, uint32_t to, Sure sure) { waits_.graph.Point(from, to, sure); }
  uint32_t Host(const RankView& rank) { return ThreadOf(rank).host; }
  // `wait_began_ns`: begin of a wait for this rank.
  uint32_t Event(const RankView& rank, const LastEvent& event, int64_t wait_began_ns);
  // Adds an arrow to the rank's last event. False: it has none that may be the cause of this wait.
  bool PointToCause(uint32_t from, const RankView& rank, int64_t wait_began_ns, Sure sure);
  uint32_t Left(std::size_t view, const RankView& rank);
  uint32_t Call(std::size_t view, uint64_t number);
  uint32_t Unknown(std::size_t view) {
    return OfView(view, ActorKind::kUnknown, ActorState::kUnknown, &unknown_);
  }
  uint32_t Unseen(std::size_t view) {
    return OfView(view, ActorKind::kUnseen, ActorState::kUnseen, &unseen_);
  }
  const std::map<uint64_t, uint32_t>& calls(std::size_t view) const { return calls_[view]; }
  // Treats a GPU as inside its call although it is not known to have begun.
  void TakeForBegun(uint32_t gpu, const Member& each);

 private:
  void AddActors(std::size_t i);
  std::size_t AddThread(const RankView& rank);
  uint32_t AddGpu(std::size_t view, const Member& each);
  uint32_t OfView(std::size_t view, ActorKind kind, ActorState state, std::vector<uint32_t>* made);
  void SumUp(HostThread* thread);

  const std::vector<CommunicatorView>& views_;
  const int64_t now_ns_;
  Waits waits_;
  std::vector<HostThread> threads_;
  std::unordered_map<const ProcessSnapshot*, std::vector<std::size_t>> threads_of_;
  std::map<std::tuple<const ProcessSnapshot*, std::string_view, uint32_t>, std::size_t>
      threads_by_gpu_;
  std::unordered_map<const RankView*, std::size_t> thread_of_;
  std::unordered_map<const RankView*, uint32_t> left_;
  // By view:
  std::vector<bool> counts_launches_;
  std::vector<std::map<uint64_t, uint32_t>> calls_;  // by the call's number
  std::vector<uint32_t> unseen_, unknown_;
};

// Returns the rank's last event if it is early enough to be the cause of a wait that began at
// `wait_began_ns`, and the rank had not left the communicator.
std::optional<LastEvent> CauseOf(const RankView& rank, int64_t wait_began_ns);

// ---- Rules that add arrows to the graph of waits (graph.h), each for one communicator. arrows.cc
// decides which rules apply. Parameters: `i`, index of the communicator's view (rank_view.h); `at`,
// index of a rank in it.

// ---- call_arrows.cc: collectives

// Returns the number of the rank's oldest collective in flight, or else of its last one.
uint64_t FrontOf(const Member& each);
// Returns the number of the collective in which the rank waits. Except in dumps, completions may be
// noticed late: calls that another, idle rank has completed are over, so it waits in a later one.
uint64_t NumberOf(const ViewWaits& waits, const Member& each);
// True if the rank waits in a collective whose number is known.
bool UsesCall(GraphBuilder& graph, std::size_t i, const Member& each);
// Adds arrows from calls to the ranks that have not arrived. Call after all other rules.
void AddCalls(GraphBuilder& graph);

// ---- peer_arrows.cc: Send and Recv

void AddPeers(GraphBuilder& graph, std::size_t i);
// Adds arrows in a communicator of two ranks, where each Send of one rank matches a Recv of the
// other.
void AddPeerByCounts(GraphBuilder& graph, std::size_t i, std::size_t at);

// ---- inside_nccl_arrows.cc: hosts that have called without a launch

void AddInsideNccl(GraphBuilder& graph, std::size_t i);
void AddUnreported(GraphBuilder& graph, std::size_t i);
// Adds arrows in a communicator that is being created. Returns false, without effect, if that isn't
// known.
bool AddBeingMade(GraphBuilder& graph, std::size_t i);

// ---- replay_arrows.cc: CUDA graphs, and communicators whose calls are not all counted

void AddReplays(GraphBuilder& graph, std::size_t i);
// Adds arrows of a member's GPU. `behind_beside_graphs` caches the ranks with fewer calls outside
// of graphs, for all members of the communicator.
void AddNotComparable(GraphBuilder& graph, std::size_t i, std::size_t at,
                      std::optional<Ranks>* behind_beside_graphs);

}  // namespace nccl_pulse

#endif  // EXPORTER_DIAGNOSIS_WAITS_GRAPH_BUILDER_H_
