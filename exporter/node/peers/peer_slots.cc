#include "exporter/node/peers/peer_slots.h"

#include <cstdint>
#include <optional>

#include "exporter/exposition/page_share.h"
#include "exporter/node/peers/peer_options.h"

namespace nccl_pulse {

PeerSlots::PeerSlots(int max_members) : peers_(max_members + kMaxSilent) {}

Peer* PeerSlots::ForNewcomer() {
  Peer* free = nullptr;
  Shares silent_of;
  int silent = 0;
  for (Peer& peer : peers_) {
    if (peer.state == Peer::State::kFree) free = &peer;
    if (peer.state != Peer::State::kSilent) continue;
    ++silent;
    ++silent_of[peer.credentials.user];
  }
  if (silent < kMaxSilent && free != nullptr) return free;
  const std::optional<uid_t> user = LargestShare(silent_of);
  Peer* oldest = nullptr;
  for (Peer& peer : peers_) {
    if (peer.state != Peer::State::kSilent || peer.credentials.user != user) continue;
    if (oldest == nullptr || peer.since < oldest->since) oldest = &peer;
  }
  return oldest;
}

Peer* PeerSlots::MemberThatGivesWay(uid_t newcomer) {
  Shares members_of;
  for (const Peer& peer : peers_) {
    if (peer.state == Peer::State::kMember) ++members_of[peer.credentials.user];
  }
  const uid_t user = GivesWay(members_of, newcomer);
  if (user == newcomer) return nullptr;
  Peer* newest = nullptr;
  for (Peer& peer : peers_) {
    if (peer.IsMemberOf(user) && (newest == nullptr || peer.order > newest->order)) newest = &peer;
  }
  return newest;
}

}  // namespace nccl_pulse
