#include "exporter/diagnosis/facts/rank_view.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "exporter/diagnosis/facts/same_ids.h"
#include "metrics/driver_error.h"

namespace nccl_pulse {
namespace {

// True if `a` is the better report of a rank: live before finalized before gone, and the later
// created of equals.
bool IsBetter(const RankView& a, const RankView& b) {
  if (a.state != b.state) return a.state < b.state;
  return a.communicator->init_realtime_ns > b.communicator->init_realtime_ns;
}

// Returns the first of the process' communicators with an error on the GPU of `of`.
const CommunicatorSnapshot* FailedOnGpuOf(const std::vector<const CommunicatorSnapshot*>& failed,
                                          const CommunicatorSnapshot& of) {
  const CommunicatorSnapshot* first = nullptr;
  for (const CommunicatorSnapshot* each : failed) {
    if (CompareGpus(*each, of) != SameGpu::kYes) continue;
    if (first == nullptr || each->driver_error_realtime_ns < first->driver_error_realtime_ns) {
      first = each;
    }
  }
  return first;
}

// True if all processes were paused together and have just resumed: they now run, and were last
// seen running at the same moment.
bool HaveJustResumed(const SnapshotSet& set, int64_t now_ns) {
  constexpr int64_t kTogetherNs = 1500000000;
  int processes = 0;
  int64_t first_ns = INT64_MAX;
  int64_t last_ns = INT64_MIN;
  for (const ProcessSnapshot& process : set.processes) {
    if (process.end != ProcessEnd::kLive) continue;
    if (process.run_state != RunState::kRunning) return false;
    if (!IsStalled(process, now_ns)) return false;
    ++processes;
    first_ns = std::min(first_ns, process.last_poll_realtime_ns);
    last_ns = std::max(last_ns, process.last_poll_realtime_ns);
  }
  return processes > 1 && ElapsedNs(last_ns, first_ns) <= kTogetherNs;
}

// True if `rank` may be a victim of `of`'s error: they share a communicator or a host, and `rank`
// has, at the same time, an error that a link between GPUs can cause.
bool MayBeVictim(const RankView& rank, const RankView& of) {
  if (!MayBePeersError(rank.failed->driver_error) || MayBePeersError(of.failed->driver_error)) {
    return false;
  }
  const int64_t apart =
      ElapsedNs(rank.failed->driver_error_realtime_ns, of.failed->driver_error_realtime_ns);
  return apart >= -kSameErrorNs && apart <= kSameErrorNs;
}

void FindFailedByPeers(std::vector<CommunicatorView>* views) {
  std::map<const ProcessSnapshot*, const RankView*> failed;
  for (const CommunicatorView& view : *views) {
    for (const RankView& rank : view.ranks) {
      if (rank.failed != nullptr) failed.emplace(rank.process, &rank);
    }
  }
  if (failed.size() < 2) return;
  std::set<const ProcessSnapshot*> victims;
  for (const auto& [process, rank] : failed) {
    for (const auto& [other_process, other] : failed) {
      const bool is_of_host = process->hostname == other_process->hostname;
      if (is_of_host && MayBeVictim(*rank, *other)) victims.insert(process);
    }
  }
  for (const CommunicatorView& view : *views) {
    for (const RankView& rank : view.ranks) {
      if (rank.failed == nullptr) continue;
      for (const RankView& other : view.ranks) {
        if (other.failed != nullptr && MayBeVictim(rank, other)) victims.insert(rank.process);
      }
    }
  }
  for (CommunicatorView& view : *views) {
    for (RankView& rank : view.ranks) rank.is_failed_by_peer = victims.count(rank.process) != 0;
  }
}

void AddProcess(const ProcessSnapshot& process, const SnapshotSet& set, const SameIds& same_ids,
                int64_t now_ns, bool have_resumed,
                std::map<std::pair<uint64_t, uint32_t>, CommunicatorView>* by_id) {
  const bool is_stalled = !have_resumed && IsStalled(process, now_ns);
  constexpr std::size_t kMostFailed = 64;  // communicators; a process has them on a few GPUs
  std::vector<const CommunicatorSnapshot*> failed;
  for (const CommunicatorSnapshot& each : process.communicators) {
    if (each.driver_error != 0 && failed.size() < kMostFailed) failed.push_back(&each);
  }
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
    view.ranks.push_back({&process, &communicator, state, ActivityOf(process, communicator, now_ns),
                          FailedOnGpuOf(failed, communicator), false, is_stalled,
                          set.is_of_all_nodes});
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
  std::map<std::tuple<const ProcessSnapshot*, std::string_view, std::string_view>, uint32_t>
      threads;
  for (RankView& rank : view->ranks) {
    const CommunicatorSnapshot& communicator = *rank.communicator;
    rank.thread = threads[{rank.process, communicator.uuid, communicator.gpu}]++;
  }
  view->comm_id = view->ranks.front().communicator->comm_id;
  view->nranks = view->ranks.front().communicator->nranks;
  view->nnodes = view->ranks.front().communicator->nnodes;
  view->are_all_expected = view->nnodes == 1 || view->ranks.front().is_of_many_hosts;
}

// True if the Sends and Recvs look like an exchange: all ranks make about the same number of calls.
// In a pipeline, the ends make fewer; with two ranks, the two can't be distinguished. Counts may
// differ a little, because endpoints are polled at different moments.
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

// Marks communicators that may span a pipeline: two of their processes also share a communicator
// with Send and Recv. Stages of a pipeline normally arrive one after the other.
void FindPipelines(std::vector<CommunicatorView>* views) {
  std::unordered_map<const ProcessSnapshot*, std::vector<std::size_t>> exchanges;  // by process
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
    if (!IsOfPipeline(view)) continue;
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

bool HasPeer(const std::vector<uint64_t>& peers, int64_t rank) {
  return std::binary_search(peers.begin(), peers.end(), static_cast<uint64_t>(rank));
}

bool AreCapturedAlike(const Ranks& ranks) {
  const GraphPosition& first = ranks.front()->communicator->graph_position;
  return std::all_of(ranks.begin(), ranks.end(), [&first](const RankView* rank) {
    const GraphPosition& position = rank->communicator->graph_position;
    return position.captures == first.captures && position.followed == first.followed &&
           position.captures < GraphPosition::kMost;
  });
}

SameGpu CompareGpus(const CommunicatorSnapshot& a, const CommunicatorSnapshot& b) {
  if (&a == &b) return SameGpu::kYes;
  const auto compare = [](const std::string& one, const std::string& other) {
    return one == other ? SameGpu::kYes : SameGpu::kNo;
  };
  if (!a.uuid.empty() && !b.uuid.empty()) return compare(a.uuid, b.uuid);
  if (!a.gpu.empty() && !b.gpu.empty()) return compare(a.gpu, b.gpu);
  return SameGpu::kPerhaps;
}

bool IsLaunchAlwaysReported(const CommunicatorSnapshot& communicator) {
  const std::string& op = communicator.last_call_op;
  return communicator.nranks > 1 && (op == "Send" || op == "Recv");
}

bool IsCollective(std::string_view op) {
  return op == "AllReduce" || op == "AllGather" || op == "ReduceScatter" || op == "Broadcast" ||
         op == "Reduce" || op == "AlltoAll" || op == "Gather" || op == "Scatter" ||
         op == kUnknownCollective;
}

// True for Send and Recv, and for one-sided operations, which also involve two ranks.
bool IsPointToPoint(std::string_view op) {
  return op == "Send" || op == "Recv" || op == "SendRecv" || op == "PutSignal" || op == "Signal" ||
         op == "WaitSignal";
}

bool WaitsForAll(std::string_view op) {
  return op == "AllReduce" || op == "AllGather" || op == "ReduceScatter" || op == "AlltoAll";
}

bool IsGrouped(std::string_view op) { return op == "Grouped"; }

const RankView* CommunicatorView::Find(int64_t rank) const {
  const auto found =
      std::lower_bound(ranks.begin(), ranks.end(), rank,
                       [](const RankView& each, int64_t wanted) { return each.rank() < wanted; });
  return found != ranks.end() && found->rank() == rank ? &*found : nullptr;
}

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
  const bool have_resumed = HaveJustResumed(snapshots, now_realtime_ns);
  std::map<std::pair<uint64_t, uint32_t>, CommunicatorView> by_id;
  for (const auto* processes : {&snapshots.processes, &snapshots.ended}) {
    for (const ProcessSnapshot& process : *processes) {
      AddProcess(process, snapshots, same_ids, now_realtime_ns, have_resumed, &by_id);
    }
  }
  std::vector<CommunicatorView> views;
  views.reserve(by_id.size());
  for (auto& [id, view] : by_id) {
    SortRanks(&view);
    view.are_all_expected &= snapshots.is_of_all_nodes || snapshots.unread_processes == 0;
    views.push_back(std::move(view));
  }
  FindPipelines(&views);
  FindFailedByPeers(&views);
  return views;
}

}  // namespace nccl_pulse
