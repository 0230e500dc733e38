#include "exporter/diagnosis/rank_view.h"

#include <algorithm>
#include <map>
#include <unordered_map>
#include <utility>

#include "exporter/diagnosis/same_ids.h"

namespace nccl_pulse {
namespace {

// Live before finalized before gone. Of equals, the one that was made last.
bool IsBetter(const RankView& a, const RankView& b) {
  if (a.state != b.state) return a.state < b.state;
  return a.communicator->init_realtime_ns > b.communicator->init_realtime_ns;
}

const CommunicatorSnapshot* FailedOnGpuOf(const ProcessSnapshot& process,
                                          const CommunicatorSnapshot& of) {
  const CommunicatorSnapshot* first = nullptr;
  for (const CommunicatorSnapshot& each : process.communicators) {
    if (each.driver_error == 0 || CompareGpus(each, of) != SameGpu::kYes) continue;
    if (first == nullptr || each.driver_error_realtime_ns < first->driver_error_realtime_ns) {
      first = &each;
    }
  }
  return first;
}

void AddProcess(const ProcessSnapshot& process, const SnapshotSet& set, const SameIds& same_ids,
                int64_t now_ns, std::map<std::pair<uint64_t, uint32_t>, CommunicatorView>* by_id) {
  const int64_t stands_after_ns = set.stands_after_ns;
  const bool is_stopped = IsStopped(process, now_ns, stands_after_ns);
  for (const CommunicatorSnapshot& communicator : process.communicators) {
    if (communicator.comm_id == 0) continue;
    const uint32_t number = same_ids.NumberOf(communicator);
    CommunicatorView& view =
        by_id->try_emplace(std::pair(communicator.comm_id, number)).first->second;
    view.number = number;
    view.is_mixed = same_ids.AreMixed(communicator);
    const RankView::State state = communicator.finalized             ? RankView::State::kFinalized
                                  : process.end != ProcessEnd::kLive ? RankView::State::kGone
                                                                     : RankView::State::kLive;
    view.ranks.push_back({&process, &communicator, state,
                          ActivityOf(process, communicator, now_ns, stands_after_ns),
                          FailedOnGpuOf(process, communicator), is_stopped, set.is_of_all_nodes});
  }
}

void SortRanks(CommunicatorView* view) {
  std::stable_sort(view->ranks.begin(), view->ranks.end(), [](const auto& a, const auto& b) {
    return a.rank() != b.rank() ? a.rank() < b.rank() : IsBetter(a, b);
  });
  if (!view->is_mixed) {
    view->ranks.erase(
        std::unique(view->ranks.begin(), view->ranks.end(),
                    [](const auto& a, const auto& b) { return a.rank() == b.rank(); }),
        view->ranks.end());
  }
  view->comm_id = view->ranks.front().communicator->comm_id;
  view->nranks = view->ranks.front().communicator->nranks;
  view->nnodes = view->ranks.front().communicator->nnodes;
  view->are_all_expected = view->nnodes == 1 || view->ranks.front().is_of_many_hosts;
}

// Of an exchange all ranks make the same number of calls; in a pipeline the ends make fewer, and of
// two ranks nobody can tell. Endpoints are not asked at the same moment.
bool IsExchange(const CommunicatorView& view) {
  constexpr std::size_t kLeastRanks = 3;
  constexpr uint64_t kLeastCalls = 64;
  constexpr double kAlike = 0.98;
  if (view.ranks.size() < kLeastRanks ||
      view.ranks.size() != static_cast<std::size_t>(view.nranks)) {
    return false;
  }
  uint64_t least = UINT64_MAX;
  uint64_t most = 0;
  for (const RankView& rank : view.ranks) {
    if (!rank.is_of_many_hosts || rank.state != RankView::State::kLive) return false;
    for (const uint64_t calls : {rank.CallsOf("Send"), rank.CallsOf("Recv")}) {
      least = std::min(least, calls);
      most = std::max(most, calls);
    }
  }
  return least >= kLeastCalls && static_cast<double>(least) >= kAlike * static_cast<double>(most);
}

// Two processes of a communicator that meet on a communicator with Send and Recv are, or may be,
// stages of a pipeline. It is normal that they arrive one after the other.
void FindPipelines(std::vector<CommunicatorView>* views) {
  std::unordered_map<const ProcessSnapshot*, std::vector<std::size_t>> exchanges;  // of a process
  for (std::size_t i = 0; i < views->size(); ++i) {
    CommunicatorView& view = (*views)[i];
    for (const RankView& rank : view.ranks) {
      const auto& calls = rank.communicator->calls;
      view.has_point_to_point |= std::any_of(
          calls.begin(), calls.end(), [](const auto& call) { return IsPointToPoint(call.op); });
    }
    for (const RankView& rank : view.ranks) {
      if (view.has_point_to_point) break;
      view.network_moved_realtime_ns =
          std::max(view.network_moved_realtime_ns, rank.communicator->network_moved_realtime_ns);
    }
    view.is_exchange = view.has_point_to_point && IsExchange(view);
    if (!view.has_point_to_point || view.is_exchange) continue;
    for (const RankView& rank : view.ranks) exchanges[rank.process].push_back(i);
  }
  if (exchanges.empty()) return;
  std::vector<std::size_t> met;
  for (CommunicatorView& view : *views) {
    met.clear();
    for (const RankView& rank : view.ranks) {
      const auto found = exchanges.find(rank.process);
      if (found != exchanges.end())
        met.insert(met.end(), found->second.begin(), found->second.end());
    }
    std::sort(met.begin(), met.end());
    view.spans_pipeline = std::adjacent_find(met.begin(), met.end()) != met.end();
  }
}

}  // namespace

SameGpu CompareGpus(const CommunicatorSnapshot& a, const CommunicatorSnapshot& b) {
  if (&a == &b) return SameGpu::kYes;
  const auto compare = [](const std::string& one, const std::string& other) {
    return one == other ? SameGpu::kYes : SameGpu::kNo;
  };
  if (!a.uuid.empty() && !b.uuid.empty()) return compare(a.uuid, b.uuid);
  if (!a.gpu.empty() && !b.gpu.empty()) return compare(a.gpu, b.gpu);
  return SameGpu::kPerhaps;
}

bool IsCollective(std::string_view op) {
  return op == "AllReduce" || op == "AllGather" || op == "ReduceScatter" || op == "Broadcast" ||
         op == "Reduce" || op == "AlltoAll" || op == "Gather" || op == "Scatter" ||
         op == kUnknownCollective;
}

// This includes one-sided operations, which involve two ranks, too.
bool IsPointToPoint(std::string_view op) {
  return op == "Send" || op == "Recv" || op == "SendRecv" || op == "PutSignal" || op == "Signal" ||
         op == "WaitSignal";
}

bool WaitsForAll(std::string_view op) {
  return op == "AllReduce" || op == "AllGather" || op == "ReduceScatter" || op == "AlltoAll";
}

bool IsGrouped(std::string_view op) { return op == "Grouped"; }

uint64_t RankView::CallsOf(std::string_view op) const {
  uint64_t calls = 0;
  for (const CallCountSnapshot& call : communicator->calls) {
    if (call.op == op && !call.captured) calls += call.calls;
  }
  return calls;
}

std::vector<CommunicatorView> GroupByCommunicator(const SnapshotSet& snapshots,
                                                  int64_t now_realtime_ns) {
  const SameIds same_ids(snapshots);
  std::map<std::pair<uint64_t, uint32_t>, CommunicatorView> by_id;
  for (const auto* processes : {&snapshots.processes, &snapshots.ended}) {
    for (const ProcessSnapshot& process : *processes) {
      AddProcess(process, snapshots, same_ids, now_realtime_ns, &by_id);
    }
  }
  std::vector<CommunicatorView> views;
  views.reserve(by_id.size());
  for (auto& [id, view] : by_id) {
    SortRanks(&view);
    views.push_back(std::move(view));
  }
  FindPipelines(&views);
  return views;
}

}  // namespace nccl_pulse
