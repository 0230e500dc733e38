#include "exporter/diagnosis/jobs.h"

#include <algorithm>
#include <utility>

#include "exporter/diagnosis/facts/same_ids.h"

namespace nccl_pulse {

Jobs::Jobs(const std::vector<CommunicatorView>& views) : sets_(views.size()) {
  for (const bool is_mixed : {false, true}) {
    for (std::size_t i = 0; i < views.size(); ++i) {
      if (views[i].is_mixed != is_mixed) continue;
      for (const RankView& rank : views[i].ranks) {
        const std::size_t first = of_.try_emplace(rank.process, i).first->second;
        if (!is_mixed) sets_.Join(i, first);
      }
    }
  }
}

Jobs::Jobs(const SnapshotSet& set) {
  const SameIds same_ids(set);
  for (const auto* processes : {&set.processes, &set.ended}) {
    for (const ProcessSnapshot& process : *processes) {
      const std::size_t own = of_[&process] = sets_.Add();
      for (const CommunicatorSnapshot& each : process.communicators) {
        if (each.comm_id == 0) continue;
        const std::pair id(each.comm_id, same_ids.NumberOf(each));
        sets_.Join(own, first_with_.try_emplace(id, own).first->second);
      }
    }
  }
}

void SetThresholds(int64_t otherwise_ns, Jobs* jobs, std::vector<CommunicatorView>* views) {
  std::vector<int64_t> shortest(views->size());  // by job; 0: none is known
  for (std::size_t i = 0; i < views->size(); ++i) {
    int64_t& of_job = shortest[jobs->OfView(i)];
    for (const RankView& rank : (*views)[i].ranks) {
      of_job = ShorterThreshold(of_job, std::max<int64_t>(rank.process->hang_after_ns, 0));
    }
  }
  for (std::size_t i = 0; i < views->size(); ++i) {
    const int64_t of_job = shortest[jobs->OfView(i)];
    (*views)[i].hang_after_ns = of_job == 0 ? otherwise_ns : of_job;
  }
}

void ForgiveRejected(Jobs* jobs, std::vector<CommunicatorView>* views) {
  std::vector<bool> is_any_rejected(views->size());  // by job
  for (std::size_t i = 0; i < views->size(); ++i) {
    for (const RankView& rank : (*views)[i].ranks) {
      if (rank.process->rejected_beside != 0) is_any_rejected[jobs->OfView(i)] = true;
    }
  }
  for (std::size_t i = 0; i < views->size(); ++i) {
    if (is_any_rejected[jobs->OfView(i)]) (*views)[i].are_all_expected = false;
  }
}

}  // namespace nccl_pulse
