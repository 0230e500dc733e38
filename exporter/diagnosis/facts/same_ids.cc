#include "exporter/diagnosis/facts/same_ids.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>

namespace nccl_pulse {

namespace {

// All ranks of a communicator create it within this time, including the difference between clocks
// and between polls.
constexpr int64_t kApartNs = 5000000000;

}  // namespace

bool SameIds::HasRankTwice(const Members& members) {
  std::vector<int32_t> ranks;
  for (const Member& member : members) {
    if (member.is_live()) ranks.push_back(member.communicator->rank);
  }
  std::sort(ranks.begin(), ranks.end());
  return std::adjacent_find(ranks.begin(), ranks.end()) != ranks.end();
}

SameIds::Members SameIds::TakeEarlier(Members* members) {
  int64_t made_ns = INT64_MAX;
  for (const Member& member : *members) {
    if (member.is_live()) made_ns = std::min(made_ns, member.communicator->init_realtime_ns);
  }
  if (made_ns == INT64_MAX) return {};
  const auto is_earlier = [made_ns](const Member& member) {
    if (member.is_live()) return false;
    // The time of finalization is not known.
    const int64_t last_ns = member.process->end == ProcessEnd::kLive
                                ? member.communicator->init_realtime_ns
                                : SeenUntil(*member.process, 0);
    return last_ns != 0 && ElapsedNs(made_ns, last_ns) > kApartNs;
  };
  const auto first =
      std::stable_partition(members->begin(), members->end(), std::not_fn(is_earlier));
  Members earlier(first, members->end());
  members->erase(first, members->end());
  return earlier;
}

std::vector<SameIds::Members> SameIds::TellApart(const Members& members) {
  std::map<int32_t, std::size_t> lives;
  std::size_t most = 0;
  for (const Member& member : members) {
    if (member.is_live()) most = std::max(most, ++lives[member.communicator->rank]);
  }
  const auto by_text = [&members](auto text_of) {
    std::map<std::string, Members> parts;
    for (const Member& member : members) parts[text_of(member)].push_back(member);
    std::vector<Members> list;
    if (parts.count("") != 0) return list;
    for (auto& [text, part] : parts) list.push_back(std::move(part));
    return list;
  };
  // Divides the members at the longest pauses: n communicators have n - 1 pauses between them.
  const auto by_time = [&members, most](auto time_of) {
    Members order = members;
    std::sort(order.begin(), order.end(),
              [&time_of](const Member& a, const Member& b) { return time_of(a) < time_of(b); });
    std::vector<std::pair<int64_t, std::size_t>> pauses;
    for (std::size_t i = 1; i < order.size(); ++i) {
      pauses.emplace_back(ElapsedNs(time_of(order[i]), time_of(order[i - 1])), i);
    }
    std::sort(pauses.rbegin(), pauses.rend());
    std::vector<std::size_t> cuts = {0, order.size()};
    for (std::size_t i = 0; i + 1 < most && pauses[i].first >= kApartNs; ++i) {
      cuts.push_back(pauses[i].second);
    }
    std::sort(cuts.begin(), cuts.end());
    std::vector<Members> list;
    for (std::size_t i = 1; i < cuts.size(); ++i) {
      const auto at = [&order](std::size_t index) {
        return order.begin() + static_cast<std::ptrdiff_t>(index);
      };
      list.emplace_back(at(cuts[i - 1]), at(cuts[i]));
    }
    return list;
  };
  const auto is_told = [](const std::vector<Members>& parts) {
    return parts.size() > 1 && std::none_of(parts.begin(), parts.end(), HasRankTwice);
  };
  if (members.front().communicator->nnodes == 1) {
    auto parts = by_text([](const Member& member) { return member.process->hostname; });
    if (is_told(parts)) return parts;
  }
  auto parts = by_time([](const Member& each) { return each.communicator->init_realtime_ns; });
  if (is_told(parts)) return parts;
  parts = by_text([](const Member& member) { return member.process->job_id; });
  if (is_told(parts)) return parts;
  parts = by_time([](const Member& each) { return each.process->start_realtime_ns; });
  if (is_told(parts)) return parts;
  return {};
}

SameIds::SameIds(const SnapshotSet& set) {
  std::unordered_map<uint64_t, Members> by_id;
  for (const auto* processes : {&set.processes, &set.ended}) {
    for (const ProcessSnapshot& process : *processes) {
      for (const CommunicatorSnapshot& communicator : process.communicators) {
        if (communicator.comm_id != 0)
          by_id[communicator.comm_id].push_back({&process, &communicator});
      }
    }
  }
  for (const auto& [id, members] : by_id) Add(members);
}

void SameIds::Add(const Members& members) {
  std::map<std::pair<int32_t, int32_t>, Members> by_size;
  for (const Member& member : members) {
    by_size[{member.communicator->nranks, member.communicator->nnodes}].push_back(member);
  }
  struct Part {
    Members members;
    bool is_mixed = false;
  };
  std::vector<Part> parts;
  for (auto& [size, of_size] : by_size) {
    Members earlier = TakeEarlier(&of_size);
    if (!earlier.empty()) parts.push_back({std::move(earlier)});
    if (!HasRankTwice(of_size)) {
      parts.push_back({std::move(of_size)});
      continue;
    }
    std::vector<Members> apart = TellApart(of_size);
    if (apart.empty()) parts.push_back({std::move(of_size), true});
    for (Members& each : apart) parts.push_back({std::move(each)});
  }
  if (parts.size() == 1 && !parts.front().is_mixed) return;
  const auto order_of = [](const Part& part) {
    bool has_live = false;
    int64_t made_ns = INT64_MAX;
    for (const Member& member : part.members) {
      has_live |= member.is_live();
      made_ns = std::min(made_ns, member.communicator->init_realtime_ns);
    }
    return std::pair(!has_live, made_ns);
  };
  std::stable_sort(parts.begin(), parts.end(),
                   [&order_of](const Part& a, const Part& b) { return order_of(a) < order_of(b); });
  for (std::size_t i = 0; i < parts.size(); ++i) {
    for (const Member& member : parts[i].members) {
      numberings_[member.communicator] = {static_cast<uint32_t>(i), parts[i].is_mixed};
    }
  }
}

SameIds::Numbering SameIds::NumberingOf(const CommunicatorSnapshot& communicator) const {
  const auto found = numberings_.find(&communicator);
  return found == numberings_.end() ? Numbering() : found->second;
}

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
