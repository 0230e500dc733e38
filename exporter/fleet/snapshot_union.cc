#include "exporter/fleet/snapshot_union.h"

#include <algorithm>
#include <iterator>
#include <tuple>
#include <unordered_set>
#include <utility>
#include <vector>

#include "exporter/diagnosis/facts/outside_ranks.h"
#include "exporter/diagnosis/jobs.h"

namespace nccl_pulse {
namespace {

// Two endpoints may report start times that differ by this much for the same process, because they
// answer at different times and their clocks differ.
constexpr int64_t kSameStartNs = 5000000000;

auto KeyOf(const ProcessSnapshot& process) {
  return std::tie(process.hostname, process.pid, process.pid_namespace, process.start_realtime_ns);
}

bool AreSame(const ProcessSnapshot& a, const ProcessSnapshot& b) {
  return a.hostname == b.hostname && a.pid == b.pid && a.pid_namespace == b.pid_namespace &&
         ElapsedNs(b.start_realtime_ns, a.start_realtime_ns) <= kSameStartNs;
}

bool IsBetter(const ProcessSnapshot& a, const ProcessSnapshot& b) {
  const bool a_lives = a.end == ProcessEnd::kLive;
  const bool b_lives = b.end == ProcessEnd::kLive;
  // The agent of its own node knows more about a process without the plugin.
  const bool is_a_here = a.is_from_outside && a.seen_pid != 0;
  const bool is_b_here = b.is_from_outside && b.seen_pid != 0;
  if (is_a_here != is_b_here) return is_a_here;
  if (a_lives != b_lives) return a_lives;
  return a.last_poll_realtime_ns > b.last_poll_realtime_ns;
}

}  // namespace

void SnapshotUnion::Add(SnapshotMessage message) {
  for (auto* processes : {&message.set.processes, &message.set.ended}) {
    for (ProcessSnapshot& process : *processes) {
      process.communicators.shrink_to_fit();  // a large job has tens of thousands
      int64_t& hang_after_ns = process.hang_after_ns;
      if (hang_after_ns <= 0) hang_after_ns = message.hang_after_ns;
      if (hang_after_ns != 0) hang_after_ns = std::max(hang_after_ns, kLeastHangAfterNs);
      set_.processes.push_back(std::move(process));
    }
  }
  for (std::size_t i = 0; i < set_.rejected.size(); ++i) {
    set_.rejected[i] += message.set.rejected[i];
  }
}

void SnapshotUnion::Filter(SnapshotSet* set) {
  Jobs jobs(*set);
  std::unordered_set<std::size_t> wanted;  // jobs
  const auto meets_filter = [this](const ProcessSnapshot& process) {
    return (filter_.job_id.empty() || process.job_id == filter_.job_id) &&
           (!filter_.comm_id ||
            std::any_of(process.communicators.begin(), process.communicators.end(),
                        [this](const auto& each) { return each.comm_id == *filter_.comm_id; }));
  };
  for (const auto* processes : {&set->processes, &set->ended}) {
    for (const ProcessSnapshot& process : *processes) {
      if (meets_filter(process)) wanted.insert(jobs.OfProcess(&process));
    }
  }
  for (auto* processes : {&set->processes, &set->ended}) {
    std::size_t kept = 0;
    for (ProcessSnapshot& process : *processes) {
      if (wanted.count(jobs.OfProcess(&process)) != 0) {
        ProcessSnapshot& place = (*processes)[kept++];
        if (&place != &process) place = std::move(process);
      } else if (!process.job_id.empty() && other_jobs_.size() < kMostOtherJobs) {
        other_jobs_.insert(process.job_id);
      }
    }
    processes->resize(kept);
  }
}

SnapshotSet SnapshotUnion::Take() {
  std::vector<ProcessSnapshot>& all = set_.processes;
  std::sort(all.begin(), all.end(),
            [](const ProcessSnapshot& a, const ProcessSnapshot& b) { return KeyOf(a) < KeyOf(b); });
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
      hang_after_ns = ShorterThreshold(hang_after_ns, all[end].hang_after_ns);
    }
    all[best].hang_after_ns = hang_after_ns;
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
  if (!filter_.job_id.empty() || filter_.comm_id) Filter(&set);
  return set;
}

}  // namespace nccl_pulse
