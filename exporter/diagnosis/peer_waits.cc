#include "exporter/diagnosis/peer_waits.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>

namespace nccl_pulse {
namespace {

bool Has(const std::vector<uint64_t>& ranks, const RankView& rank) {
  return std::binary_search(ranks.begin(), ranks.end(), static_cast<uint64_t>(rank.rank()));
}

bool IsBusyElsewhere(const CommunicatorFacts& facts, const RankView& rank) {
  return std::any_of(rank.process->communicators.begin(), rank.process->communicators.end(),
                     [&](const CommunicatorSnapshot& each) {
                       return ActivityOf(*rank.process, each, facts.now_ns).is_in_flight();
                     });
}

class Follower {
 public:
  explicit Follower(const CommunicatorFacts& facts) : facts_(facts) {
    waits_.are_known = !facts.stuck.empty();
    for (const RankView* rank : facts.stuck) {
      const PeersSnapshot& peers = rank->communicator->peers;
      waits_.are_known &= peers.are_known;
      for (const uint64_t peer : peers.sends_to) Add(*rank, peer, true);
      for (const uint64_t peer : peers.receives_from) Add(*rank, peer, false);
    }
  }

  PeerWaits Make() {
    Sort(&missing_);
    const bool is_one = waits_.are_known && are_all_here_ && missing_.size() == 1;
    for (const PeerWait& wait : waits_.waits) {
      if ((is_one || WaitsForOne(*wait.rank)) && !MayHaveSent(wait)) Accuse(*wait.peer);
    }
    Sort(&waits_.awaited);
    FindCircle();
    return std::move(waits_);
  }

 private:
  void Add(const RankView& rank, uint64_t number, bool sends) {
    const RankView* peer = facts_.view->Find(static_cast<int64_t>(number));
    if (peer == nullptr) {
      are_all_here_ = false;
      return;
    }
    const PeersSnapshot& others = peer->communicator->peers;
    const bool is_mutual = peer->activity.is_in_flight() && others.are_known &&
                           Has(sends ? others.receives_from : others.sends_to, rank);
    // A rank that ended while it waited had made its call.
    const bool has_come = peer->activity.is_in_flight() || Contains(facts_.ended_waiting, peer);
    if (!has_come) missing_.push_back(peer);
    waits_.waits.push_back({&rank, peer, sends, is_mutual});
  }

  static void Sort(Ranks* ranks) {
    std::sort(ranks->begin(), ranks->end(), std::less<>());
    ranks->erase(std::unique(ranks->begin(), ranks->end()), ranks->end());
  }

  static bool HasNotBegun(const RankView& rank) {
    return rank.activity.oldest_launch == OldestLaunch::kNotBegun;
  }

  // A Send may end before its Recv, which then waits for its own GPU or for the network: the GPU
  // has not begun it, or the peer has launched something since.
  static bool MayHaveSent(const PeerWait& wait) {
    const int64_t launched_ns = wait.peer->communicator->last_launch_realtime_ns;
    return !wait.sends && (HasNotBegun(*wait.rank) ||
                           launched_ns > wait.rank->communicator->oldest_inflight_realtime_ns);
  }

  void Accuse(const RankView& peer) {
    const bool is_live = peer.state == RankView::State::kLive;
    if (is_live && peer.activity.is_idle() && !IsBusyElsewhere(facts_, peer)) {
      waits_.awaited.push_back(&peer);
    }
  }

  // The only call that it has in flight is one with one peer.
  static bool WaitsForOne(const RankView& rank) {
    const PeersSnapshot& peers = rank.communicator->peers;
    return peers.are_known && IsExact(rank) &&
           peers.sends_to.size() + peers.receives_from.size() == 1;
  }

  // Several launches in flight may be known late: what such a rank waits in is not certain.
  static bool IsExact(const RankView& rank) {
    return rank.communicator->launches - rank.communicator->launches_completed == 1;
  }

  // Returns what each rank is certain to wait in, null: that is not known. By its place among the
  // ranks.
  std::vector<const PeerWait*> CertainWaits() const {
    const bool are_all_known = waits_.are_known && are_all_here_ && missing_.empty();
    std::vector<const PeerWait*> certain(facts_.view->ranks.size());
    std::vector<int> candidates(certain.size());
    for (const PeerWait& wait : waits_.waits) {
      const RankView& rank = *wait.rank;
      const int32_t receiver = rank.communicator->peers.is_sending_to;
      const bool is_certain =
          receiver >= 0 ? wait.sends && wait.peer->rank() == receiver
                        : are_all_known && !wait.is_mutual && IsExact(rank) && !HasNotBegun(rank);
      if (is_certain) certain[PlaceOf(rank)] = ++candidates[PlaceOf(rank)] == 1 ? &wait : nullptr;
    }
    return certain;
  }
  std::size_t PlaceOf(const RankView& rank) const { return &rank - facts_.view->ranks.data(); }

  // Goes from each rank to the one that it is certain to wait for.
  void FindCircle() {
    const std::vector<const PeerWait*> waits = CertainWaits();
    std::vector<std::size_t> seen_from(waits.size(), SIZE_MAX);
    for (std::size_t from = 0; from < waits.size(); ++from) {
      std::size_t at = from;
      for (; waits[at] != nullptr && seen_from[at] == SIZE_MAX; at = PlaceOf(*waits[at]->peer)) {
        seen_from[at] = from;
      }
      if (waits[at] == nullptr || seen_from[at] != from) continue;
      const std::size_t first = at;
      do {
        waits_.circle.push_back(*waits[at]);
        at = PlaceOf(*waits[at]->peer);
      } while (at != first);
      return;
    }
  }

  const CommunicatorFacts& facts_;
  PeerWaits waits_;
  bool are_all_here_ = true;  // each peer is seen
  Ranks missing_;             // peers that have no work in flight here
};

}  // namespace

PeerWaits FollowPeers(const CommunicatorFacts& facts) { return Follower(facts).Make(); }

}  // namespace nccl_pulse
