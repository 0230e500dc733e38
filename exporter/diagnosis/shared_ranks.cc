#include "exporter/diagnosis/shared_ranks.h"

#include <map>
#include <set>
#include <string>
#include <tuple>

#include "exporter/diagnosis/same_ids.h"

namespace nccl_pulse {

void ForgetSharedRanks(SnapshotSet* set) {
  const SameIds same_ids(*set);
  std::map<std::tuple<uint64_t, uint32_t, std::string>, ProcessSnapshot*> first_with;
  std::set<ProcessSnapshot*> sharing;
  for (ProcessSnapshot& process : set->processes) {
    if (process.end != ProcessEnd::kLive || process.global_rank.empty()) continue;
    for (const CommunicatorSnapshot& communicator : process.communicators) {
      if (communicator.comm_id == 0 || same_ids.AreMixed(communicator)) continue;
      const auto [at, is_first] = first_with.try_emplace(
          std::tuple(communicator.comm_id, same_ids.NumberOf(communicator), process.global_rank),
          &process);
      if (is_first || at->second == &process) continue;
      sharing.insert(at->second);
      sharing.insert(&process);
    }
  }
  for (ProcessSnapshot* process : sharing) process->global_rank.clear();
}

}  // namespace nccl_pulse
