#include "exporter/node/peers/page_room.h"

#include <cstdint>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "exporter/exposition/page_share.h"

namespace nccl_pulse {
namespace {

uint64_t Total(const Shares& shares) {
  uint64_t total = 0;
  for (const auto& [user, share] : shares) total += share;
  return total;
}

}  // namespace

PageRoom::PageRoom(const PeerOptions* options, PeerSlots* peers, KeptProcesses* kept,
                   LogFunction log)
    : options_(*options), peers_(*peers), kept_(*kept), log_(std::move(log)) {}

void PageRoom::Price(const ProcessSnapshot& process, Peer* peer) {
  peer->finalized_bytes = FinalizedHistogramBytes(process);
  peer->page_bytes = PageBytes(process) - (peer->leaves_finalized ? peer->finalized_bytes : 0);
}

Peer* PageRoom::Make() {
  while (true) {
    Shares bytes_of;
    for (const Peer& peer : peers_) {
      if (peer.state == Peer::State::kMember) bytes_of[peer.credentials.user] += peer.page_bytes;
    }
    kept_.AddShares(&bytes_of);
    if (Total(bytes_of) <= options_.max_page_bytes) return nullptr;
    const uid_t user = LargestShare(bytes_of).value_or(options_.user);
    // Live data is worth more than ended processes'.
    if (kept_.ForgetOldestOf(user) || LeaveOutFinalizedOf(user)) continue;
    Peer* largest = nullptr;
    for (Peer& peer : peers_) {
      if (!peer.IsMemberOf(user)) continue;
      if (largest == nullptr || peer.page_bytes > largest->page_bytes ||
          (peer.page_bytes == largest->page_bytes && peer.order > largest->order)) {
        largest = &peer;
      }
    }
    return largest;
  }
}

// Leaves out the histograms of the user's member that has most of them. Returns false if none has
// any.
bool PageRoom::LeaveOutFinalizedOf(uid_t user) {
  Peer* most = nullptr;
  for (Peer& peer : peers_) {
    if (!peer.IsMemberOf(user) || peer.leaves_finalized || peer.finalized_bytes == 0) continue;
    if (most == nullptr || peer.finalized_bytes > most->finalized_bytes) most = &peer;
  }
  if (most == nullptr) return false;
  most->leaves_finalized = true;
  most->page_bytes -= most->finalized_bytes;
  if (log_ && !logged_finalized_) {
    logged_finalized_ = true;
    log_(LogLevel::kWarning,
         absl::StrCat("the page is full: it leaves out histograms of finalized communicators, "
                      "first of process ",
                      most->credentials.pid, " of user ", user, " (logged once)"));
  }
  return true;
}

void PageRoom::ShowFinalizedAgain() {
  Shares kept_bytes;
  kept_.AddShares(&kept_bytes);
  uint64_t total = Total(kept_bytes);
  for (const Peer& peer : peers_) {
    if (peer.state != Peer::State::kMember) continue;
    total += peer.page_bytes + (peer.leaves_finalized ? peer.finalized_bytes : 0);
  }
  if (total > options_.max_page_bytes) return;
  for (Peer& peer : peers_) {
    if (!peer.leaves_finalized) continue;
    peer.leaves_finalized = false;
    peer.page_bytes += peer.finalized_bytes;
  }
}

}  // namespace nccl_pulse
