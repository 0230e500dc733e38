#include <algorithm>

#include "exporter/diagnosis/waits/graph_builder.h"

namespace nccl_pulse {
namespace {

struct PeerWait {
  std::size_t at, peer;  // members
  bool sends, is_mutual;
  bool is_called;  // the peer is known to have made the matching call
  bool is_front;   // the GPU is in this call, or enters it next
};

// Returns the peer of the launch that the rank's GPU is in, or enters next; -1: not known.
int32_t PeerAtFront(const RankView& rank, bool sends) {
  const PeersSnapshot& peers = rank.communicator->peers;
  return sends ? peers.is_sending_to : peers.is_receiving_from;
}

bool IsFrontKnown(const RankView& rank) {
  return PeerAtFront(rank, true) >= 0 || PeerAtFront(rank, false) >= 0;
}

// True if the rank's only call in flight has one peer.
bool WaitsForOne(const Member& each) {
  const PeersSnapshot& peers = each.rank->communicator->peers;
  return peers.are_known && each.in_flight == 1 &&
         peers.sends_to.size() + peers.receives_from.size() == 1;
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

// Adds the arrows of one communicator's Sends and Recvs in flight.
class PeerArrows {
 public:
  PeerArrows(GraphBuilder& graph, std::size_t i)
      : graph_(graph), i_(i), view_(graph.view(i)), waits_(graph.waits(i)) {}

  void Add() {
    for (std::size_t at = 0; at < waits_.members.size(); ++at) {
      const Member& each = waits_.members[at];
      if (waits_.gpus[at] == kNoActor || each.rank->state == RankView::State::kFinalized) continue;
      if (graph_.actor(waits_.gpus[at]).state == ActorState::kMoving) continue;
      if (each.doing == Doing::kInside && UsesCall(graph_, i_, each)) continue;
      if (each.doing == Doing::kNotBegun) continue;  // it waits for its own GPU first
      const PeersSnapshot& peers = each.rank->communicator->peers;
      are_known_ &= peers.are_known || !each.is_live();
      for (const uint64_t peer : peers.sends_to) FindWait(at, peer, true);
      for (const uint64_t peer : peers.receives_from) FindWait(at, peer, false);
      if (!peers.are_known) AddUnknownPeers(graph_, i_, at);
    }
    all_.erase(std::remove_if(all_.begin(), all_.end(),
                              [this](const PeerWait& wait) {
                                return PointToMismatch(wait.at, wait.peer, wait.sends);
                              }),
               all_.end());
    FindMissing();
    std::vector<int> certain(waits_.members.size());
    for (const PeerWait& wait : all_) certain[wait.at] += IsCertain(wait) ? 1 : 0;
    for (const PeerWait& wait : all_) {
      const bool is_certain = certain[wait.at] == 1 && IsCertain(wait);
      if (certain[wait.at] == 1 && !is_certain) continue;  // it waits in the other call
      if (!wait.is_front && IsFrontKnown(*waits_.members[wait.at].rank)) continue;
      AddPeer(wait, is_certain);
    }
  }

  // For exchanges of all ranks, whose launches are compared like collectives.
  void AddMismatches() {
    for (std::size_t at = 0; at < waits_.members.size(); ++at) {
      if (waits_.gpus[at] == kNoActor) continue;
      if (graph_.actor(waits_.gpus[at]).state == ActorState::kMoving) continue;
      for (const PeerCallsSnapshot& calls : waits_.members[at].rank->communicator->peer_calls) {
        const RankView* peer = view_.Find(calls.peer);
        if (peer == nullptr) continue;
        PointToMismatch(at, static_cast<std::size_t>(peer - view_.ranks.data()), !calls.receives);
      }
    }
  }

 private:
  // Number of awaited peers that have nothing in flight.
  enum class Missing {
    kNone,
    kSeveral,
    kOne,
    kLast  // one, for which several ranks wait, and these are all others
  };

  void FindWait(std::size_t at, uint64_t number, bool sends) {
    const RankView* peer = view_.Find(static_cast<int64_t>(number));
    if (peer == nullptr) {
      are_known_ = false;
      const bool is_rank = number < static_cast<uint64_t>(view_.nranks);
      if (is_rank && view_.are_all_expected)
        graph_.Point(waits_.gpus[at], graph_.Unseen(i_), Sure::kMay);
      return;
    }
    const RankView& own = *waits_.members[at].rank;
    const auto peer_at = static_cast<std::size_t>(peer - view_.ranks.data());
    const PeersSnapshot& others = peer->communicator->peers;
    const bool is_mutual = waits_.members[peer_at].is_in_flight() && others.are_known &&
                           HasPeer(sends ? others.receives_from : others.sends_to, own.rank());
    all_.push_back({at, peer_at, sends, is_mutual, HasCalledPeer(own, *peer, sends),
                    PeerAtFront(own, sends) == peer->rank()});
  }

  // Adds an arrow if the sizes of two ranks' calls differ. The difference found first is named.
  bool PointToMismatch(std::size_t at, std::size_t peer, bool sends) {
    std::optional<Mismatch> mismatch =
        ComparePeerCalls(*waits_.members[at].rank, *waits_.members[peer].rank, sends);
    if (!mismatch) return false;
    if (!waits_.mismatch) waits_.mismatch = std::move(mismatch);
    if (differ_ == kNoActor) {
      differ_ = graph_.Add({ActorKind::kMismatch, ActorState::kMismatched, 0, i_});
    }
    graph_.Point(waits_.gpus[at], differ_, Sure::kMust);
    return true;
  }

  void FindMissing() {
    std::size_t last = 0;
    bool is_for_another = false;
    for (const PeerWait& wait : all_) {
      is_for_another |= IsForAnother(wait);
      if (waits_.members[wait.peer].is_in_flight()) continue;
      if (missing_ == Missing::kOne && last != wait.peer) missing_ = Missing::kSeveral;
      if (missing_ == Missing::kNone) missing_ = Missing::kOne;
      last = wait.peer;
    }
    if (missing_ != Missing::kOne) return;
    const auto in_flight = std::count_if(waits_.members.begin(), waits_.members.end(),
                                         [](const Member& each) { return each.is_in_flight(); });
    if (!are_known_ || is_for_another) {
      missing_ = Missing::kSeveral;
    } else if (in_flight > 1 && in_flight + 1 == view_.nranks) {
      missing_ = Missing::kLast;
    }
  }

  // True if the call may have the wrong peer: a third rank waits for a call of this rank, and all
  // earlier calls of these two may have been pairs.
  bool IsForAnother(const PeerWait& wait) const {
    constexpr uint64_t kLeastPairs = 64;  // the first step of a pipeline looks like this
    if (!WaitsForOne(waits_.members[wait.at])) return false;
    const RankView& own = *waits_.members[wait.at].rank;
    const uint64_t calls = own.CallsOf(wait.sends ? "Send" : "Recv");
    return calls >= kLeastPairs &&
           std::any_of(waits_.members.begin(), waits_.members.end(), [&](const Member& third) {
             const PeersSnapshot& peers = third.rank->communicator->peers;
             return third.is_live() && third.is_in_flight() &&
                    HasPeer(wait.sends ? peers.receives_from : peers.sends_to, own.rank()) &&
                    third.rank->CallsOf(wait.sends ? "Recv" : "Send") == calls;
           });
  }

  // True if the Send that a Recv waits for may have been completed: a small Send ends before its
  // Recv, which then waits for the network. Among several ranks, any completed Send may be this
  // one.
  bool MayHaveSent(const PeerWait& wait) const {
    if (wait.sends) return false;
    if (!waits_.facts.are_all_seen()) return true;
    const bool is_pair = view_.nranks == 2;
    uint64_t received = 0;
    uint64_t sent = 0;
    for (std::size_t at = 0; at < waits_.members.size(); ++at) {
      const Member& each = waits_.members[at];
      if (each.in_flight > 1) return AreUnbalanced();
      const PeersSnapshot& peers = each.rank->communicator->peers;
      if (!is_pair || at == wait.at) {
        received += each.rank->CallsOf("Recv") - peers.receives_from.size();
      }
      if (!is_pair || at == wait.peer) sent += each.rank->CallsOf("Send") - peers.sends_to.size();
    }
    return sent > received;
  }

  // True if a Send, or another call, may have been completed without its counterpart. False if each
  // launch is one call between an even and an odd rank, and both have completed as many.
  bool AreUnbalanced() const {
    int64_t balance = 0;
    for (const Member& each : waits_.members) {
      const bool is_odd = each.rank->rank() % 2 != 0;
      const CommunicatorSnapshot& communicator = *each.rank->communicator;
      if (communicator.launches != each.rank->CallsOf("Send") + each.rank->CallsOf("Recv"))
        return true;
      for (const auto* peers : {&communicator.peers.sends_to, &communicator.peers.receives_from}) {
        for (const uint64_t peer : *peers) {
          if ((peer % 2 != 0) == is_odd) return true;
        }
      }
      balance += is_odd ? -static_cast<int64_t>(communicator.launches_completed)
                        : static_cast<int64_t>(communicator.launches_completed);
    }
    return balance != 0;
  }

  bool IsCertain(const PeerWait& wait) const {
    const Member& each = waits_.members[wait.at];
    if (wait.is_called && !wait.is_mutual) return false;  // the peer has completed its call
    if (wait.is_front) {
      const RankView& peer = *waits_.members[wait.peer].rank;
      // If both GPUs are in the matching calls, the network or a GPU blocks them.
      if (PeerAtFront(peer, !wait.sends) == each.rank->rank()) return false;
      // A peer that sends to another rank may do so by mistake.
      if (wait.sends || wait.is_mutual || PeerAtFront(peer, false) >= 0) return true;
    }
    return are_known_ && missing_ == Missing::kNone && !wait.is_mutual && each.in_flight == 1;
  }

  void AddPeer(const PeerWait& wait, bool is_certain) {
    const uint32_t gpu = waits_.gpus[wait.at];
    const Member& each = waits_.members[wait.at];
    const Member& peer = waits_.members[wait.peer];
    const std::optional<LastEvent> cause = CauseOf(*peer.rank, each.since_ns);
    if (cause && !HadWaited(peer, cause->at_ns)) {
      return graph_.Point(gpu, graph_.Event(*peer.rank, *cause, each.since_ns), Sure::kMust);
    }
    if (peer.is_in_flight()) {
      if (!wait.is_mutual || is_certain) {
        graph_.Point(gpu, waits_.gpus[wait.peer],
                     !is_certain         ? Sure::kPerhaps
                     : MayHaveSent(wait) ? Sure::kUnlessSent
                                         : Sure::kMust);
      } else if (peer.doing == Doing::kNotBegun || !peer.is_live()) {
        // An ended process makes no more calls. Two of these don't wait for each other.
        graph_.Point(gpu, waits_.gpus[wait.peer], each.is_live() ? Sure::kMay : Sure::kUnsure);
      }
      return;
    }
    if (peer.rank->state == RankView::State::kFinalized &&
        !graph_.LeftWaiting(*peer.rank, each.since_ns)) {
      return graph_.Point(gpu, graph_.Left(i_, *peer.rank), Sure::kMay);
    }
    const bool is_seen = peer.doing == Doing::kIdle || IsExiting(*peer.rank) || !peer.is_live();
    if (!is_seen) return graph_.Point(gpu, graph_.Unknown(i_), Sure::kPerhaps);
    // The peer may have sent: a small Send ends before its Recv, which then waits for its own GPU
    // or for the network.
    const bool may_have_sent =
        !wait.sends && peer.rank->communicator->last_launch_realtime_ns > each.launched_ns;
    const bool is_awaited = (missing_ != Missing::kSeveral || wait.is_front || WaitsForOne(each)) &&
                            (missing_ == Missing::kLast || !may_have_sent) && !IsForAnother(wait) &&
                            !wait.is_called;
    graph_.Point(gpu, graph_.Host(*peer.rank),
                 is_awaited              ? Sure::kMust
                 : IsExiting(*peer.rank) ? Sure::kMay
                                         : Sure::kPerhaps);
    if (is_awaited) graph_.Owe(*peer.rank, i_);
  }

  GraphBuilder& graph_;
  const std::size_t i_;
  const CommunicatorView& view_;
  ViewWaits& waits_;
  std::vector<PeerWait> all_;
  bool are_known_ = true;  // all peers are known, and are in this view
  Missing missing_ = Missing::kNone;
  uint32_t differ_ = kNoActor;  // actor of a difference in size
};

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
  PeerArrows arrows(graph, i);
  graph.counts_launches(i) ? arrows.AddMismatches() : arrows.Add();
}

}  // namespace nccl_pulse
