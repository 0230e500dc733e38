#include "exporter/diagnosis/facts/last_heard.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "exporter/diagnosis/facts/call_counts.h"
#include "exporter/diagnosis/jobs.h"

namespace nccl_pulse {
namespace {

// Without the start time, which varies: clocks are compared anew in each poll.
using ProcessKey = std::tuple<std::string, int32_t, uint32_t>;
ProcessKey KeyOf(const ProcessSnapshot& process) {
  return {process.hostname, process.pid, process.pid_namespace};
}

bool IsLive(const ProcessSnapshot& process) {
  return process.end == ProcessEnd::kLive && process.heard_realtime_ns == 0;
}

// Returns facts that change when a rank makes progress. Hosts may run ahead while they wait, so
// calls are used only if nothing else is known.
auto ProgressOf(const CommunicatorSnapshot& communicator) {
  const bool is_by_calls = !communicator.has_heartbeat || communicator.unreported_calls != 0;
  return std::tuple(communicator.launches_completed, communicator.graph_replays,
                    communicator.graph_position.passed, communicator.finalized,
                    is_by_calls ? TotalCollectives(communicator) : 0);
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
  if (remembered_.processes.empty()) return;
  std::map<ProcessKey, const ProcessSnapshot*> here;
  for (const auto* processes : {&set->processes, &set->ended}) {
    for (const ProcessSnapshot& process : *processes) here[KeyOf(process)] = &process;
  }
  Jobs jobs(remembered_);
  std::set<uint64_t> moved;       // communicators
  std::set<std::size_t> awaited;  // jobs in which a reported rank still waits
  for (const ProcessSnapshot& then : remembered_.processes) {
    const auto now = here.find(KeyOf(then));
    if (now == here.end() || !IsLive(*now->second)) continue;
    for (const CommunicatorSnapshot& each : then.communicators) {
      const auto& all = now->second->communicators;
      const auto same = std::find_if(all.begin(), all.end(), [&each](const auto& other) {
        return other.comm_id == each.comm_id && other.index == each.index;
      });
      if (stalled_.count(each.comm_id) == 0 || same == all.end() || same->finalized) continue;
      if (ProgressOf(*same) != ProgressOf(each)) {
        moved.insert(each.comm_id);
      } else if (SeenInFlightSince(each) != 0 || each.unreported_calls != 0 || each.captured) {
        awaited.insert(jobs.OfProcess(&then));
      }
    }
  }
  for (std::size_t i = 0; i < endpoints_.size(); ++i) {
    const ProcessSnapshot& process = remembered_.processes[i];
    if (heard.count(endpoints_[i]) != 0 || here.count(KeyOf(process)) != 0) continue;
    if (awaited.count(jobs.OfProcess(&process)) == 0) continue;
    const auto& all = process.communicators;
    const bool has_moved = std::any_of(all.begin(), all.end(), [&moved](const auto& each) {
      return moved.count(each.comm_id) != 0;
    });
    if (has_moved) continue;
    (process.end == ProcessEnd::kLive ? set->processes : set->ended).push_back(process);
  }
}

void LastHeard::Keep(
    const SnapshotSet& set, const DiagnosisResult& diagnosis, int64_t now_realtime_ns,
    const std::function<std::string(const ProcessSnapshot& process)>& endpoint_of) {
  std::map<ProcessKey, std::string> silent;
  for (std::size_t i = 0; i < endpoints_.size(); ++i) {
    silent[KeyOf(remembered_.processes[i])] = std::move(endpoints_[i]);
  }
  endpoints_.clear();
  stalled_.clear();
  std::set<std::pair<uint64_t, int32_t>> named;
  for (const CommunicatorDiagnosis& each : diagnosis) {
    if (!each.hang) continue;
    stalled_.insert(each.comm_id);
    for (const int32_t rank : each.hang->suspects) named.emplace(each.comm_id, rank);
  }
  std::vector<const ProcessSnapshot*> suspects, others;
  for (const auto* processes : {&set.processes, &set.ended}) {
    for (const ProcessSnapshot& process : *processes) {
      bool takes_part = false;
      bool is_suspect = false;
      for (const CommunicatorSnapshot& each : process.communicators) {
        takes_part |= stalled_.count(each.comm_id) != 0;
        is_suspect |= named.count({each.comm_id, each.rank}) != 0;
      }
      if (takes_part) (is_suspect ? suspects : others).push_back(&process);
    }
  }
  suspects.insert(suspects.end(), others.begin(), others.end());
  if (suspects.size() > kMost) suspects.resize(kMost);
  std::vector<ProcessSnapshot> kept;
  for (const ProcessSnapshot* process : suspects) {
    kept.push_back(Essence(*process));
    const bool is_silent = process->heard_realtime_ns != 0;
    if (!is_silent) kept.back().heard_realtime_ns = now_realtime_ns;
    endpoints_.push_back(is_silent ? silent[KeyOf(*process)] : endpoint_of(*process));
  }
  remembered_.processes = std::move(kept);
}

}  // namespace nccl_pulse
