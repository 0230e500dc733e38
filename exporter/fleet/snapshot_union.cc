#include "exporter/fleet/snapshot_union.h"

#include <algorithm>
#include <iterator>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "exporter/diagnosis/outside_ranks.h"

namespace nccl_pulse {
namespace {

// How much two endpoints may differ about the start of one process: the time of answering, and
// clocks that differ.
constexpr int64_t kSameStartNs = 5000000000;

auto KeyOf(const ProcessSnapshot& process) {
  return std::tie(process.hostname, process.pid, process.pid_namespace, process.start_realtime_ns);
}

bool AreSame(const ProcessSnapshot& a, const ProcessSnapshot& b) {
  return a.hostname == b.hostname && a.pid == b.pid && a.pid_namespace == b.pid_namespace &&
         ElapsedNs(b.start_realtime_ns, a.start_realtime_ns) <= kSameStartNs;
}

// 0: not known.
int64_t Shortest(int64_t a, int64_t b) {
  return a == 0 || b == 0 ? std::max(a, b) : std::min(a, b);
}

bool IsBetter(const ProcessSnapshot& a, const ProcessSnapshot& b) {
  const bool a_lives = a.end == ProcessEnd::kLive;
  const bool b_lives = b.end == ProcessEnd::kLive;
  // Of a process without the plugin its own node's agent knows more.
  const bool is_a_here = a.is_from_outside && a.seen_pid != 0;
  const bool is_b_here = b.is_from_outside && b.seen_pid != 0;
  if (is_a_here != is_b_here) return is_a_here;
  if (a_lives != b_lives) return a_lives;
  return a.last_poll_realtime_ns > b.last_poll_realtime_ns;
}

// The communicators of all processes that are connected with one communicator through others.
std::unordered_set<uint64_t> Connected(const std::vector<ProcessSnapshot>& all, uint64_t from) {
  std::unordered_map<uint64_t, std::vector<const ProcessSnapshot*>> members;
  for (const ProcessSnapshot& process : all) {
    for (const CommunicatorSnapshot& each : process.communicators) {
      members[each.comm_id].push_back(&process);
    }
  }
  std::unordered_set<uint64_t> reached = {from};
  std::vector<uint64_t> next = {from};
  while (!next.empty()) {
    const uint64_t comm_id = next.back();
    next.pop_back();
    // 0 is an unknown id, which connects nobody.
    if (comm_id == 0) continue;
    for (const ProcessSnapshot* process : members[comm_id]) {
      for (const CommunicatorSnapshot& each : process->communicators) {
        if (reached.insert(each.comm_id).second) next.push_back(each.comm_id);
      }
    }
  }
  return reached;
}

}  // namespace

bool SnapshotUnion::IsWanted(const ProcessSnapshot& process) const {
  return filter_.job_id.empty() || process.job_id == filter_.job_id;
}

std::size_t SnapshotUnion::Add(SnapshotMessage message) {
  std::size_t wanted = 0;
  for (auto* processes : {&message.set.processes, &message.set.ended}) {
    for (ProcessSnapshot& process : *processes) {
      if (!IsWanted(process)) {
        const bool is_named = !process.job_id.empty() && other_jobs_.size() < kMostOtherJobs;
        if (is_named) other_jobs_.insert(std::move(process.job_id));
        continue;
      }
      ++wanted;
      process.communicators.shrink_to_fit();  // a large job has tens of thousands
      process.hang_after_ns = std::max<int64_t>(message.hang_after_ns, 0);
      set_.processes.push_back(std::move(process));
    }
  }
  for (std::size_t i = 0; i < set_.rejected.size(); ++i) {
    set_.rejected[i] += message.set.rejected[i];
  }
  return wanted;
}

SnapshotSet SnapshotUnion::Take() {
  std::vector<ProcessSnapshot>& all = set_.processes;
  std::sort(all.begin(), all.end(),
            [](const ProcessSnapshot& a, const ProcessSnapshot& b) { return KeyOf(a) < KeyOf(b); });
  const std::unordered_set<uint64_t> job =
      filter_.comm_id ? Connected(all, *filter_.comm_id) : std::unordered_set<uint64_t>();
  const auto is_connected = [this, &job](const ProcessSnapshot& process) {
    return !filter_.comm_id ||
           std::any_of(process.communicators.begin(), process.communicators.end(),
                       [&job](const auto& each) { return job.count(each.comm_id) != 0; });
  };
  SnapshotSet set;
  set.is_of_all_nodes = true;
  set.rejected = set_.rejected;
  std::size_t kept = 0;  // in its place: a second list would be as large
  for (std::size_t begin = 0; begin < all.size();) {
    std::size_t best = begin;
    std::size_t end = begin + 1;
    int64_t hang_after_ns = all[begin].hang_after_ns;
    for (; end < all.size() && AreSame(all[end - 1], all[end]); ++end) {
      if (IsBetter(all[end], all[best])) best = end;
      hang_after_ns = Shortest(hang_after_ns, all[end].hang_after_ns);
    }
    all[best].hang_after_ns = hang_after_ns;
    if (!is_connected(all[best])) {
      begin = end;
      continue;
    }
    ProcessSnapshot& process = all[best];
    if (process.end != ProcessEnd::kLive) {
      set.ended.push_back(std::move(process));
    } else {
      if (kept != best) all[kept] = std::move(process);
      ++kept;
    }
    begin = end;
  }
  all.resize(kept);
  set.processes = std::move(all);
  set_ = SnapshotSet();
  JoinOutsideRanks(&set);
  return set;
}

}  // namespace nccl_pulse
