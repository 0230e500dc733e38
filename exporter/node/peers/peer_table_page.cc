// Selects which measurements of members and ended processes a page shows.
#include <sys/types.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "exporter/base/time.h"
#include "exporter/node/peers/peer_table.h"
#include "exporter/node/run_state.h"

namespace nccl_pulse {
namespace {

void ClearFinalizedHistograms(ProcessSnapshot* process) {
  for (CommunicatorSnapshot& each : process->communicators) {
    if (each.finalized) std::vector<LatencySnapshot>().swap(each.latencies);
  }
}

}  // namespace

void PeerTable::Read(SnapshotSet* set, Time now, const ReadWish& wish) {
  kept_.ForgetOld(now);
  room_.ShowFinalizedAgain();
  std::vector<PageEntry> entries;
  for (Peer& peer : peers_) {
    if (peer.state != Peer::State::kMember) continue;
    if (peer.IsLost()) {
      Drop(&peer);
      continue;
    }
    ProcessSnapshot snapshot;
    Rejection reason{};
    std::string error;
    if (!peer.segment.Read(&snapshot, &reason, &error, wish)) {
      Refuse(&peer, reason, error);
      continue;
    }
    AddRunState(peer.credentials.pid, RealtimeNs(), &snapshot);
    PageRoom::Price(snapshot, &peer);
    const bool is_itself = IsItself(snapshot, peer.credentials);
    SetCredentials(peer, &snapshot);
    entries.push_back(
        {std::move(snapshot), peer.credentials.user, peer.order, is_itself, false, &peer});
    // Fits now, not at the end: memory holds at most a page and one process.
    FitPage();
    RemoveRefused(&entries);
    for (PageEntry& entry : entries) {
      if (entry.peer->leaves_finalized) ClearFinalizedHistograms(&entry.process);
    }
  }
  for (const auto* kept : {&kept_.shown(), &kept_.remembered()}) {
    const bool is_ended = kept == &kept_.remembered();
    for (const KeptProcess& each : *kept) {
      entries.push_back({each.process, each.user, each.order, each.is_itself, is_ended, nullptr});
    }
  }
  LeaveOutForeignProcesses(&entries);
  for (PageEntry& entry : entries) LeaveOutForeignCommunicators(&entry);
  for (PageEntry& entry : entries) {
    (entry.is_ended ? set->ended : set->processes).push_back(std::move(entry.process));
  }
  for (int i = 0; i < kRejections; ++i) set->rejected[i] += rejections_.counts()[i];
  set->unread_processes += rejections_.CountUnread();
}

void PeerTable::RemoveRefused(std::vector<PageEntry>* entries) {
  const auto is_refused = [](const PageEntry& entry) {
    return entry.peer != nullptr && entry.peer->state != Peer::State::kMember;
  };
  entries->erase(std::remove_if(entries->begin(), entries->end(), is_refused), entries->end());
}

// Leaves out processes that another user owns (ownership.h), and refuses their peers.
void PeerTable::LeaveOutForeignProcesses(std::vector<PageEntry>* entries) {
  std::vector<Claim> claims;
  claims.reserve(entries->size());
  for (const PageEntry& entry : *entries) {
    claims.push_back({&entry.process, entry.user, entry.order, entry.is_itself});
  }
  ownership_.Settle(std::move(claims));
  const auto is_refused = [&](const PageEntry& entry) {
    const uid_t owner = ownership_.OwnerOf(entry.process);
    if (owner == entry.user) return false;
    if (entry.peer != nullptr) {
      Refuse(entry.peer, Rejection::kForeignClaim,
             absl::StrCat("it claims to be process ", entry.process.pid, " of rank \"",
                          entry.process.global_rank, "\", which is user ", owner, "'s"));
    }
    return true;
  };
  entries->erase(std::remove_if(entries->begin(), entries->end(), is_refused), entries->end());
}

void PeerTable::LeaveOutForeignCommunicators(PageEntry* entry) {
  std::vector<CommunicatorSnapshot>& communicators = entry->process.communicators;
  const auto foreign = std::stable_partition(
      communicators.begin(), communicators.end(),
      [&](const CommunicatorSnapshot& each) { return ownership_.OwnerOf(each) == entry->user; });
  if (foreign == communicators.end()) return;
  if (entry->peer != nullptr && !entry->peer->claims_foreign) {
    entry->peer->claims_foreign = true;
    rejections_.Count(
        *entry->peer, Rejection::kForeignClaim,
        absl::StrCat("has communicators of another user, such as ",
                     absl::Hex(foreign->comm_id, absl::kZeroPad16), ", which is user ",
                     ownership_.OwnerOf(*foreign), "'s; they are left out"));
  }
  communicators.erase(foreign, communicators.end());
}

}  // namespace nccl_pulse
