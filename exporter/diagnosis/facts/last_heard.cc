#include "exporter/diagnosis/facts/last_heard.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "exporter/base/disjoint_sets.h"
#include "exporter/diagnosis/facts/abandoned_calls.h"
#include "exporter/diagnosis/facts/call_counts.h"

namespace nccl_pulse {
namespace {

// Without the start: clocks are compared anew in each look, so it varies.
using Key = std::tuple<std::string, int32_t, uint32_t>;
Key KeyOf(const ProcessSnapshot& process) {
  return {process.hostname, process.pid, process.pid_namespace};
}

bool IsLive(const ProcessSnapshot& process) {
  return process.end == ProcessEnd::kLive && process.heard_realtime_ns == 0;
}

// Returns facts that change when a rank goes on. Hosts may run ahead while they wait, so calls count
// only where nothing else does.
auto ProgressOf(const CommunicatorSnapshot& communicator) {
  const bool is_by_calls = !communicator.has_heartbeat || communicator.unreported_calls != 0;
  return std::tuple(communicator.launches_completed, communicator.graph_replays,
                    communicator.graph_place.passed, communicator.finalized,
                    is_by_calls ? Total(CollectiveCalls(communicator)) : 0);
}

// Returns the part of `process` that the graph of waits reads.
ProcessSnapshot Essence(const ProcessSnapshot& process) {
  ProcessSnapshot kept = process;
  kept.pace.clear();
  kept.recycled_calls.clear();
  for (CommunicatorSnapshot& each : kept.communicators) {
    each.abandoned_calls = AbandonedCallsOf(each);
    each.untimed.clear();
    each.algorithms.clear();
    each.latencies.clear();
    each.usual_durations.clear();
    each.timed_calls.clear();
    each.picked_calls.clear();
    each.sequences.clear();
    each.uncompleted.clear();
    each.composites.clear();
    each.replayed.clear();
    each.last_calls = nullptr;
  }
  return kept;
}

}  // namespace

void LastHeard::AddTo(const std::set<std::string>& heard, SnapshotSet* set) {
  if (processes_.empty()) return;
  std::map<Key, const ProcessSnapshot*> here;
  for (const auto* processes : {&set->processes, &set->ended}) {
    for (const ProcessSnapshot& process : *processes) here[KeyOf(process)] = &process;
  }
  // Stalled communicators, joined where processes share them.
  std::unordered_map<uint64_t, std::size_t> sets_of;
  DisjointSets sets;
  std::set<uint64_t> moved;
  std::vector<std::size_t> awaited;
  for (const Remembered& each : processes_) {
    const auto found = here.find(KeyOf(each.process));
    const ProcessSnapshot* now = found == here.end() ? nullptr : found->second;
    std::size_t first = SIZE_MAX;
    for (const CommunicatorSnapshot& then : each.process.communicators) {
      if (stalled_.count(then.comm_id) == 0) continue;
      const auto [own, is_new] = sets_of.try_emplace(then.comm_id, 0);
      if (is_new) own->second = sets.Add();
      if (first == SIZE_MAX) first = own->second;
      sets.Join(own->second, first);
      if (now == nullptr || !IsLive(*now)) continue;
      const auto same = std::find_if(
          now->communicators.begin(), now->communicators.end(), [&then](const auto& other) {
            return other.comm_id == then.comm_id && other.index == then.index;
          });
      if (same == now->communicators.end() || same->finalized) continue;
      if (ProgressOf(*same) != ProgressOf(then)) {
        moved.insert(then.comm_id);
      } else if (SeenInFlightSince(then) != 0 || then.unreported_calls != 0 || then.captured) {
        awaited.push_back(own->second);
      }
    }
  }
  std::set<std::size_t> awaited_sets;
  for (const std::size_t each : awaited) awaited_sets.insert(sets.SetOf(each));
  for (Remembered& each : processes_) {
    if (heard.count(each.endpoint) != 0 || here.count(KeyOf(each.process)) != 0) continue;
    bool is_awaited = false;
    bool has_moved = false;
    for (const CommunicatorSnapshot& communicator : each.process.communicators) {
      const auto found = sets_of.find(communicator.comm_id);
      if (found == sets_of.end()) continue;
      is_awaited |= awaited_sets.count(sets.SetOf(found->second)) != 0;
      has_moved |= moved.count(communicator.comm_id) != 0;
    }
    if (!is_awaited || has_moved) continue;
    const bool has_ended = each.process.end != ProcessEnd::kLive;
    (has_ended ? set->ended : set->processes).push_back(each.process);
  }
}

void LastHeard::Keep(
    const SnapshotSet& set, const DiagnosisResult& diagnosis, int64_t now_realtime_ns,
    const std::function<std::string(const ProcessSnapshot& process)>& endpoint_of) {
  std::map<Key, std::string> silent;
  for (Remembered& each : processes_) silent[KeyOf(each.process)] = std::move(each.endpoint);
  processes_.clear();
  stalled_.clear();
  std::set<std::pair<uint64_t, int32_t>> named;
  for (const CommunicatorDiagnosis& each : diagnosis) {
    if (!each.hang) continue;
    stalled_.insert(each.comm_id);
    for (const int32_t rank : each.hang->suspects) named.emplace(each.comm_id, rank);
  }
  if (stalled_.empty()) return;
  for (const bool is_named : {true, false}) {
    for (const auto* processes : {&set.processes, &set.ended}) {
      for (const ProcessSnapshot& process : *processes) {
        if (processes_.size() == kMost) return;
        bool takes_part = false;
        bool is_suspect = false;
        for (const CommunicatorSnapshot& each : process.communicators) {
          takes_part |= stalled_.count(each.comm_id) != 0;
          is_suspect |= named.count({each.comm_id, each.rank}) != 0;
        }
        if (!takes_part || is_suspect != is_named) continue;
        Remembered& kept = processes_.emplace_back();
        kept.process = Essence(process);
        if (process.heard_realtime_ns != 0) {
          kept.endpoint = silent[KeyOf(process)];
        } else {
          kept.process.heard_realtime_ns = now_realtime_ns;
          kept.endpoint = endpoint_of(process);
        }
      }
    }
  }
}

}  // namespace nccl_pulse
