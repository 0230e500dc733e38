#include "exporter/fleet/snapshot_union.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <string>
#include <tuple>
#include <unordered_set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "exporter/diagnosis/facts/outside_ranks.h"
#include "exporter/diagnosis/jobs.h"

namespace nccl_pulse {
namespace {

// Two endpoints may report start times that differ by this much for the same process, because they
// answer at different times and their clocks differ.
constexpr int64_t kSameStartNs = 5000000000;

// Processes of different nodes may agree in all but the rank, where host names are the same.
auto KeyOf(const ProcessSnapshot& process) {
  return std::tie(process.hostname, process.pid, process.pid_namespace, process.global_rank,
                  process.start_realtime_ns);
}

bool AreSame(const ProcessSnapshot& a, const ProcessSnapshot& b) {
  return a.hostname == b.hostname && a.pid == b.pid && a.pid_namespace == b.pid_namespace &&
         a.global_rank == b.global_rank &&
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

void SnapshotUnion::Add(SnapshotMessage message, const std::string& address, std::size_t endpoint) {
  Source source{address, endpoint, set_.processes.size()};
  for (auto* processes : {&message.set.processes, &message.set.ended}) {
    for (ProcessSnapshot& process : *processes) {
      process.communicators.shrink_to_fit();  // a large job has tens of thousands
      process.rejected_beside = message.set.unread_processes;
      int64_t& hang_after_ns = process.hang_after_ns;
      if (hang_after_ns <= 0) hang_after_ns = message.hang_after_ns;
      if (hang_after_ns != 0) hang_after_ns = std::max(hang_after_ns, kLeastHangAfterNs);
      set_.processes.push_back(std::move(process));
    }
  }
  auto& notes = message.set.outside_notes;
  std::move(notes.begin(), notes.end(), std::back_inserter(set_.outside_notes));
  source.behind = set_.processes.size();
  if (!address.empty()) sources_.push_back(std::move(source));
  for (std::size_t i = 0; i < set_.rejected.size(); ++i) {
    set_.rejected[i] += message.set.rejected[i];
  }
  set_.unread_processes += message.set.unread_processes;
}

void SnapshotUnion::SeparateHosts() {
  struct Seen {
    int32_t nodes = 0;
    std::map<std::string, std::set<std::size_t>> sources;  // by host name
    std::set<int32_t> ranks;
  };
  // A process that several sources report belongs to the first.
  std::map<std::tuple<std::string, int32_t, uint32_t, std::string>, std::size_t> first_source;
  std::map<uint64_t, Seen> seen;  // by communicator
  std::map<std::string, std::size_t> source_of_host;
  std::set<std::string> shared, of_several;  // host names
  const auto for_each = [this](auto visit) {
    for (std::size_t i = 0; i < sources_.size(); ++i) {
      for (std::size_t at = sources_[i].first; at < sources_[i].behind; ++at) {
        visit(i, &set_.processes[at]);
      }
    }
  };
  for_each([&](std::size_t source, ProcessSnapshot* process) {
    const std::string& host = process->hostname;
    if (source_of_host.try_emplace(host, source).first->second != source) shared.insert(host);
  });
  if (shared.empty()) return;
  const auto key_of = [](const ProcessSnapshot& process) {
    return std::tuple(process.hostname, process.pid, process.pid_namespace, process.global_rank);
  };
  for_each([&](std::size_t source, ProcessSnapshot* process) {
    if (!first_source.try_emplace(key_of(*process), source).second) return;
    for (const CommunicatorSnapshot& each : process->communicators) {
      Seen& communicator = seen[each.comm_id];
      communicator.nodes = std::max(communicator.nodes, each.nnodes);
      if (!communicator.ranks.insert(each.rank).second) continue;
      communicator.sources[process->hostname].insert(source);
    }
  });
  for (const auto& [comm_id, communicator] : seen) {
    if (communicator.nodes <= static_cast<int64_t>(communicator.sources.size())) continue;
    for (const auto& [host, sources] : communicator.sources) {
      if (sources.size() > 1) of_several.insert(host);
    }
  }
  for_each([&](std::size_t /*source*/, ProcessSnapshot* process) {
    if (of_several.count(process->hostname) == 0) return;
    const Source& first = sources_[first_source.at(key_of(*process))];
    absl::StrAppend(&process->hostname, " at ", first.address);
  });
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
        ProcessSnapshot& free = (*processes)[kept++];
        if (&free != &process) free = std::move(process);
      } else if (!process.job_id.empty() && other_jobs_.size() < kMostOtherJobs) {
        other_jobs_.insert(process.job_id);
      }
    }
    processes->resize(kept);
  }
  std::set<uint64_t> ids;
  for (const ProcessSnapshot& process : set->processes) {
    for (const CommunicatorSnapshot& each : process.communicators) ids.insert(each.comm_id);
  }
  if (filter_.comm_id) ids.insert(*filter_.comm_id);
  auto& notes = set->outside_notes;
  notes.erase(std::remove_if(notes.begin(), notes.end(),
                             [&](const OutsideNote& each) { return ids.count(each.comm_id) == 0; }),
              notes.end());
}

SnapshotSet SnapshotUnion::Take() {
  SeparateHosts();
  std::vector<ProcessSnapshot>& all = set_.processes;
  endpoint_of_.clear();
  for (const Source& source : sources_) {
    for (std::size_t i = source.first; i < source.behind; ++i) {
      endpoint_of_.try_emplace({all[i].hostname, all[i].pid}, source.endpoint);
    }
  }
  sources_.clear();
  std::sort(all.begin(), all.end(),
            [](const ProcessSnapshot& a, const ProcessSnapshot& b) { return KeyOf(a) < KeyOf(b); });
  SnapshotSet set;
  set.is_of_all_nodes = true;
  set.rejected = set_.rejected;
  set.unread_processes = set_.unread_processes;
  std::set<std::pair<uint64_t, std::string>> said;  // by agents of several nodes of the job
  for (OutsideNote& note : set_.outside_notes) {
    if (said.emplace(note.comm_id, note.text).second) set.outside_notes.push_back(std::move(note));
  }
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
