#include "exporter/node/peers/ownership.h"

#include <algorithm>
#include <utility>

namespace nccl_pulse {
namespace {

template <typename Key>
bool Owns(const std::map<Key, uid_t>& owners, const Key& key, uid_t user) {
  const auto owner = owners.find(key);
  return owner != owners.end() && owner->second == user;
}

}  // namespace

void Ownership::Settle(std::vector<Claim> claims) {
  std::sort(claims.begin(), claims.end(),
            [](const Claim& a, const Claim& b) { return a.order < b.order; });
  std::map<ProcessKey, uid_t> processes;
  const auto settle_processes = [&](auto may_own) {
    for (const Claim& claim : claims) {
      if (may_own(claim)) processes.try_emplace(Key(*claim.process), claim.user);
    }
  };
  settle_processes([](const Claim& claim) { return claim.is_itself; });
  settle_processes(
      [&](const Claim& claim) { return Owns(processes_, Key(*claim.process), claim.user); });
  settle_processes([](const Claim&) { return true; });
  processes_ = std::move(processes);

  std::map<uint64_t, uid_t> communicators;
  const auto settle_communicators = [&](auto may_own) {
    for (const Claim& claim : claims) {
      if (OwnerOf(*claim.process) != claim.user) continue;  // the whole process is left out
      for (const CommunicatorSnapshot& each : claim.process->communicators) {
        if (may_own(each, claim.user)) communicators.try_emplace(each.comm_id, claim.user);
      }
    }
  };
  settle_communicators([&](const CommunicatorSnapshot& each, uid_t user) {
    return Owns(communicators_, each.comm_id, user);
  });
  settle_communicators([](const CommunicatorSnapshot&, uid_t) { return true; });
  communicators_ = std::move(communicators);
}

}  // namespace nccl_pulse
