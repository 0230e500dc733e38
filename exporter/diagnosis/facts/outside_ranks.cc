#include "exporter/diagnosis/facts/outside_ranks.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "exporter/diagnosis/facts/call_counts.h"

namespace nccl_pulse {
namespace {

using RankKey = std::pair<uint64_t, int32_t>;  // communicator, rank

RankKey KeyOf(const CommunicatorSnapshot& each) { return {each.comm_id, each.rank}; }

// A rank that both the plugin and RAS report.
struct Reference {
  const CommunicatorSnapshot* measured = nullptr;
  Calls from_outside;
};

// Returns the reference's counts by the plugin, corrected by the difference between the two ranks'
// counts by RAS.
std::vector<CallCountSnapshot> Aligned(const Reference& reference, const Calls& own) {
  std::vector<CallCountSnapshot> calls = reference.measured->calls;
  for (auto [kind, owed] : Excess(reference.from_outside, own)) {
    for (CallCountSnapshot& each : calls) {
      if (each.op != kind.first || each.captured) continue;
      const uint64_t taken = std::min(owed, each.calls);
      each.calls -= taken;
      owed -= taken;
    }
  }
  for (const auto& [kind, more] : Excess(own, reference.from_outside)) {
    const auto found = std::find_if(
        calls.begin(), calls.end(),
        [&op = kind.first](const auto& each) { return each.op == op && !each.captured; });
    if (found != calls.end()) {
      found->calls += more;
    } else {
      calls.push_back({kind.first, kind.second, "", false, more, 0});
    }
  }
  return calls;
}

}  // namespace

void JoinOutsideRanks(SnapshotSet* set) {
  std::vector<ProcessSnapshot*> outside;
  std::map<RankKey, const CommunicatorSnapshot*> measured;
  for (auto* processes : {&set->processes, &set->ended}) {
    for (ProcessSnapshot& process : *processes) {
      if (process.is_from_outside) outside.push_back(&process);
    }
  }
  if (outside.empty()) return;
  for (const ProcessSnapshot& process : set->processes) {
    if (process.is_from_outside) continue;
    for (const CommunicatorSnapshot& each : process.communicators) {
      if (each.comm_id != 0 && !each.finalized) measured.emplace(KeyOf(each), &each);
    }
  }
  std::map<uint64_t, Reference> references;
  for (const ProcessSnapshot* process : outside) {
    for (const CommunicatorSnapshot& each : process->communicators) {
      const auto found = measured.find(KeyOf(each));
      if (found == measured.end()) continue;
      references.try_emplace(each.comm_id,
                             Reference{found->second, WithoutSizes(CollectiveCalls(each))});
    }
  }
  std::stable_partition(outside.begin(), outside.end(),
                        [](const ProcessSnapshot* each) { return each->seen_pid != 0; });
  std::set<RankKey> known;
  for (ProcessSnapshot* process : outside) {
    auto& own = process->communicators;
    own.erase(std::remove_if(own.begin(), own.end(),
                             [&](const CommunicatorSnapshot& each) {
                               return measured.count(KeyOf(each)) != 0 ||
                                      !known.insert(KeyOf(each)).second;
                             }),
              own.end());
    for (CommunicatorSnapshot& each : own) {
      const auto reference = references.find(each.comm_id);
      if (reference == references.end()) continue;
      const CommunicatorSnapshot& measured_one = *reference->second.measured;
      each.nranks = measured_one.nranks;
      each.nnodes = measured_one.nnodes;
      each.init_realtime_ns = measured_one.init_realtime_ns;
      each.calls = Aligned(reference->second, WithoutSizes(CollectiveCalls(each)));
    }
  }
  for (auto* processes : {&set->processes, &set->ended}) {
    processes->erase(std::remove_if(processes->begin(), processes->end(),
                                    [](const ProcessSnapshot& each) {
                                      return each.is_from_outside && each.communicators.empty();
                                    }),
                     processes->end());
  }
}

}  // namespace nccl_pulse
