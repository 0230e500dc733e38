#include "metrics/peers.h"

#include <algorithm>
#include <cstddef>

namespace nccl_pulse {
namespace {

struct Peers {
  std::vector<uint64_t> of;
  std::size_t unknown = 0;

  void Add(int32_t peer, int32_t self) {
    if (peer < 0) ++unknown;
    if (peer >= 0 && peer != self) of.push_back(static_cast<uint64_t>(peer));
  }
};

void AddSorted(const Peers& peers, std::vector<uint64_t>* all) {
  all->insert(all->end(), peers.of.begin(), peers.of.end());
  std::sort(all->begin(), all->end());
  all->erase(std::unique(all->begin(), all->end()), all->end());
}

// Adds the peers of one group. False if some are not known.
bool AddGroup(const LastCallSnapshot* call, const LastCallSnapshot* end, int32_t rank,
              PeersSnapshot* peers) {
  Peers sends;
  Peers receives;
  bool are_peers = true;
  for (; call != end; ++call) {
    are_peers &= call->op == "Send" || call->op == "Recv";
    (call->op == "Send" ? sends : receives).Add(call->peer, rank);
  }
  AddSorted(sends, &peers->sends_to);
  AddSorted(receives, &peers->receives_from);
  const bool is_any_known = !sends.of.empty() || !receives.of.empty();
  return are_peers && is_any_known && sends.unknown == receives.unknown && sends.unknown <= 1;
}

// True if the oldest launch in flight is known and the GPU may have reached it.
bool IsAtOldest(const CommunicatorSnapshot& communicator) {
  const bool is_only = communicator.launches == communicator.launches_completed + 1;
  return communicator.is_at_oldest ||
         (is_only && communicator.oldest_launch != OldestLaunch::kNotBegun);
}

}  // namespace

PeersSnapshot PeersOf(const std::vector<LastCallSnapshot>& calls,
                      const CommunicatorSnapshot& communicator) {
  const uint64_t completed = communicator.launches_completed;
  const int32_t rank = communicator.rank;
  PeersSnapshot peers;
  bool are_known = true;
  bool is_any = false;
  uint64_t next = communicator.launches + 1;  // the launch after those of the group
  for (std::size_t end = calls.size(); end > 0;) {
    std::size_t begin = end - 1;
    while (begin > 0 && calls[begin].is_of_group) --begin;
    const LastCallSnapshot& first = calls[begin];
    const bool is_of_several = end - begin > 1;
    if (first.launch == 0) {
      are_known &= first.captured;  // otherwise not launched yet, or its launch was not reported
    } else {
      // NCCL may cut a group into several launches.
      const uint64_t last = is_of_several ? std::max(first.launch, next - 1) : first.launch;
      if (last <= completed) break;
      is_any = true;
      are_known &= AddGroup(&first, calls.data() + end, rank, &peers);
      are_known &= !first.is_of_group;  // else the ring has lost the group's beginning
      const bool is_one = !is_of_several && !first.is_of_group;
      if (is_one && first.launch == completed + 1 && first.peer != rank &&
          IsAtOldest(communicator)) {
        if (first.op == "Send") peers.is_sending_to = first.peer;
        if (first.op == "Recv") peers.is_receiving_from = first.peer;
      }
      next = first.launch;
    }
    end = begin;
  }
  peers.are_known = are_known && is_any;
  return peers;
}

}  // namespace nccl_pulse
