#include "exporter/diagnosis/job_processes.h"

#include <cstddef>
#include <unordered_map>
#include <utility>

namespace nccl_pulse {

std::vector<JobProcesses> JobsOf(const std::vector<CommunicatorView>& views) {
  std::unordered_map<const ProcessSnapshot*, const ProcessSnapshot*> next;
  const auto root = [&next](const ProcessSnapshot* process) {
    while (next.at(process) != process) {
      next[process] = next.at(next.at(process));
      process = next.at(process);
    }
    return process;
  };
  for (const CommunicatorView& view : views) {
    const ProcessSnapshot* first = nullptr;
    for (const RankView& rank : view.ranks) {
      next.try_emplace(rank.process, rank.process);
      if (view.is_mixed) continue;
      if (first == nullptr) first = rank.process;
      next[root(rank.process)] = root(first);
    }
  }
  std::map<const ProcessSnapshot*, JobProcesses> jobs;
  for (const CommunicatorView& view : views) {
    bool is_in_use = false;
    for (const RankView& rank : view.ranks) {
      JobProcesses& job = jobs[root(rank.process)];
      if (job.views.empty() || job.views.back() != &view) job.views.push_back(&view);
      if (rank.state != RankView::State::kLive) continue;
      is_in_use = true;
      job.ranks.try_emplace(rank.process,
                            JobRank{view.comm_id, rank.rank(), rank.process, rank.communicator});
    }
    if (!is_in_use) continue;
    jobs[root(view.ranks.front().process)].are_all_seen &=
        view.ranks.size() == static_cast<std::size_t>(view.nranks);
  }
  std::vector<JobProcesses> list;
  for (auto& [first, job] : jobs) list.push_back(std::move(job));
  return list;
}

}  // namespace nccl_pulse
