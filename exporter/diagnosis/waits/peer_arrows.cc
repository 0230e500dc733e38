#include <algorithm>

#include "exporter/diagnosis/waits/arrow_rules.h"

namespace nccl_pulse {
namespace {

struct PeerWait {
  std::size_t at, peer;  // members
  bool sends, is_mutual;
  bool is_front;  // the GPU is known to be in this call
};

// Returns the peer of the launch that the rank's GPU is known to be in; -1: not known.
int32_t PeerAtFront(const RankView& rank, bool sends) {
  const PeersSnapshot& peers = rank.communicator->peers;
  return sends ? peers.is_sending_to : peers.is_receiving_from;
}

// True if the rank's only call in flight has one peer.
bool WaitsForOne(const Member& each) {
  const PeersSnapshot& peers = each.rank->communicator->peers;
  return peers.are_known && each.in_flight == 1 &&
         peers.sends_to.size() + peers.receives_from.size() == 1;
}

// True if the call may have the wrong peer: a third rank waits for a call of this rank, and all
// earlier calls of these two may have been pairs.
bool IsForAnother(const ViewWaits& waits, const PeerWait& wait) {
  constexpr uint64_t kLeastPairs = 64;  // the first step of a pipeline looks like this
  if (!WaitsForOne(waits.members[wait.at])) return false;
  const RankView& own = *waits.members[wait.at].rank;
  const uint64_t calls = own.CallsOf(wait.sends ? "Send" : "Recv");
  return calls >= kLeastPairs &&
         std::any_of(waits.members.begin(), waits.members.end(), [&](const Member& third) {
           const PeersSnapshot& peers = third.rank->communicator->peers;
           return third.is_live() && third.is_in_flight() &&
                  HasPeer(wait.sends ? peers.receives_from : peers.sends_to, own.rank()) &&
                  third.rank->CallsOf(wait.sends ? "Recv" : "Send") == calls;
         });
}

// True if the peer may have sent: a small Send ends before its Recv, which then waits for its own
// GPU or for the network.
bool MayHaveSent(const PeerWait& wait, const Member& each, const Member& peer) {
  return !wait.sends && (each.doing == Doing::kNotBegun ||
                         peer.rank->communicator->last_launch_realtime_ns > each.launched_ns);
}

bool IsCertain(GraphBuilder& graph, std::size_t i, const PeerWait& wait, bool are_all_come) {
  const Member& each = graph.waits(i).members[wait.at];
  if (wait.is_front) {
    const RankView& peer = *graph.waits(i).members[wait.peer].rank;
    // If both GPUs are in the matching calls, the network or a GPU blocks them.
    if (PeerAtFront(peer, !wait.sends) == each.rank->rank()) return false;
    // A peer that sends to another rank may do so by mistake.
    if (wait.sends || wait.is_mutual || PeerAtFront(peer, false) >= 0) return true;
  }
  return are_all_come && !wait.is_mutual && each.in_flight == 1 && each.doing != Doing::kNotBegun;
}

// How many of the awaited peers have nothing in flight.
enum class Missing {
  kSeveral,
  kOne,
  kLast  // one, for which several ranks wait, and these are all others
};

void AddPeer(GraphBuilder& graph, std::size_t i, const PeerWait& wait, Missing missing,
             bool is_certain) {
  ViewWaits& waits = graph.waits(i);
  const uint32_t gpu = waits.gpus[wait.at];
  const Member& each = waits.members[wait.at];
  const Member& peer = waits.members[wait.peer];
  const std::optional<LastEvent> cause = CauseOf(*peer.rank, each.since_ns);
  if (cause && !HadWaited(peer, cause->at_ns)) {
    return graph.Point(gpu, graph.Event(*peer.rank, *cause, each.since_ns), Sure::kMust);
  }
  if (peer.is_in_flight()) {
    if (!wait.is_mutual || is_certain) {
      graph.Point(gpu, waits.gpus[wait.peer], is_certain ? Sure::kMust : Sure::kPerhaps);
    } else if (peer.doing == Doing::kNotBegun ||
               (each.is_live() && !peer.is_live())) {  // an ended process makes no more calls
      graph.Point(gpu, waits.gpus[wait.peer], Sure::kMay);
    }
    return;
  }
  if (peer.rank->state == RankView::State::kFinalized &&
      !graph.LeftWaiting(*peer.rank, each.since_ns)) {
    return graph.Point(gpu, graph.Left(i, *peer.rank), Sure::kMay);
  }
  const bool is_seen = peer.doing == Doing::kIdle || IsExiting(*peer.rank) || !peer.is_live();
  if (!is_seen) return graph.Point(gpu, graph.Unknown(i), Sure::kPerhaps);
  const bool is_awaited = (missing != Missing::kSeveral || wait.is_front || WaitsForOne(each)) &&
                          (missing == Missing::kLast || !MayHaveSent(wait, each, peer)) &&
                          !IsForAnother(waits, wait);
  graph.Point(gpu, graph.Host(*peer.rank),
              is_awaited              ? Sure::kMust
              : IsExiting(*peer.rank) ? Sure::kMay
                                      : Sure::kPerhaps);
  if (is_awaited) graph.Owe(*peer.rank, i);
}

void AddUnknownPeers(GraphBuilder& graph, std::size_t i, std::size_t at) {
  const ViewWaits& waits = graph.waits(i);
  const uint32_t gpu = waits.gpus[at];
  const CommunicatorFacts& facts = waits.facts;
  if (!facts.owing.empty() && !IsOwedProven(facts)) {
    return graph.Point(gpu, graph.Unknown(i), Sure::kMust);
  }
  AddPeerByCounts(graph, i, at);
  const bool do_all_wait =
      std::all_of(waits.members.begin(), waits.members.end(),
                  [](const Member& each) { return !each.is_live() || each.is_in_flight(); });
  for (std::size_t other = 0; other < waits.members.size(); ++other) {
    const Member& each = waits.members[other];
    if (other == at ||
        graph.PointToCause(gpu, *each.rank, waits.members[at].since_ns, Sure::kMay)) {
      continue;
    }
    if (IsExiting(*each.rank)) {
      graph.Point(gpu, graph.Host(*each.rank), Sure::kMay);
    } else if (do_all_wait && each.doing == Doing::kNotBegun && waits.members[at].is_begun) {
      graph.Point(gpu, waits.gpus[other], Sure::kMay);
    }
  }
  if (graph.DoAllSeenWait(i) && graph.actor(gpu).arrows.empty())
    graph.Point(gpu, graph.Unseen(i), Sure::kMay);
}

}  // namespace

// In a communicator of two ranks, each Send of one matches a Recv of the other.
void AddPeerByCounts(GraphBuilder& graph, std::size_t i, std::size_t at) {
  const ViewWaits& waits = graph.waits(i);
  if (graph.view(i).nranks != 2 || waits.members.size() != 2) return;
  const RankView& each = *waits.members[at].rank;
  const RankView& other = *waits.members[1 - at].rank;
  if (waits.members[1 - at].doing != Doing::kIdle) return;
  const bool owes =
      each.CallsOf("Send") > other.CallsOf("Recv") || each.CallsOf("Recv") > other.CallsOf("Send");
  if (!owes) return;
  const uint32_t from = waits.gpus[at] != kNoActor ? waits.gpus[at] : graph.Host(each);
  graph.Point(from, graph.Host(other), Sure::kMust);
  graph.Owe(other, i);
}

void AddPeers(GraphBuilder& graph, std::size_t i) {
  ViewWaits& waits = graph.waits(i);
  const CommunicatorView& view = graph.view(i);
  std::vector<PeerWait> all;
  std::vector<std::size_t> missing;
  bool are_known = true;
  bool are_all_here = true;
  const auto add = [&](std::size_t at, uint64_t number, bool sends) {
    const RankView* peer = view.Find(static_cast<int64_t>(number));
    if (peer == nullptr) {
      are_all_here = false;
      const bool is_rank = number < static_cast<uint64_t>(view.nranks);
      if (is_rank && graph.DoAllSeenWait(i))
        graph.Point(waits.gpus[at], graph.Unseen(i), Sure::kMay);
      return;
    }
    const RankView& own = *waits.members[at].rank;
    const bool is_front = PeerAtFront(own, sends) == peer->rank();
    const auto peer_at = static_cast<std::size_t>(peer - view.ranks.data());
    const PeersSnapshot& others = peer->communicator->peers;
    const bool has_come = waits.members[peer_at].is_in_flight();
    const bool is_mutual = has_come && others.are_known &&
                           HasPeer(sends ? others.receives_from : others.sends_to, own.rank());
    if (!has_come) missing.push_back(peer_at);
    all.push_back({at, peer_at, sends, is_mutual, is_front});
  };
  for (std::size_t at = 0; at < waits.members.size(); ++at) {
    const Member& each = waits.members[at];
    if (waits.gpus[at] == kNoActor || each.rank->state == RankView::State::kFinalized) continue;
    if (graph.actor(waits.gpus[at]).state == ActorState::kMoving) continue;
    if (each.doing == Doing::kInside && UsesCall(graph, i, each)) continue;
    if (each.doing == Doing::kNotBegun) continue;  // it waits for its own GPU first
    const PeersSnapshot& peers = each.rank->communicator->peers;
    are_known &= peers.are_known || !each.is_live();
    for (const uint64_t peer : peers.sends_to) add(at, peer, true);
    for (const uint64_t peer : peers.receives_from) add(at, peer, false);
    if (!peers.are_known) AddUnknownPeers(graph, i, at);
  }
  std::sort(missing.begin(), missing.end());
  missing.erase(std::unique(missing.begin(), missing.end()), missing.end());
  const bool is_one_missing = are_known && are_all_here && missing.size() == 1 &&
                              std::none_of(all.begin(), all.end(), [&waits](const PeerWait& wait) {
                                return IsForAnother(waits, wait);
                              });
  const auto in_flight = std::count_if(waits.members.begin(), waits.members.end(),
                                       [](const Member& each) { return each.is_in_flight(); });
  const bool do_all_others_wait = in_flight > 1 && in_flight + 1 == view.nranks;
  const Missing how_many = !is_one_missing      ? Missing::kSeveral
                           : do_all_others_wait ? Missing::kLast
                                                : Missing::kOne;
  const bool are_all_come = are_known && are_all_here && missing.empty();
  std::vector<int> certain(waits.members.size());
  for (const PeerWait& wait : all)
    certain[wait.at] += IsCertain(graph, i, wait, are_all_come) ? 1 : 0;
  for (const PeerWait& wait : all) {
    const bool is_certain = certain[wait.at] == 1 && IsCertain(graph, i, wait, are_all_come);
    if (certain[wait.at] == 1 && !is_certain) continue;  // it waits in the other call
    AddPeer(graph, i, wait, how_many, is_certain);
  }
}

}  // namespace nccl_pulse
