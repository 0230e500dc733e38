#include "exporter/diagnosis/busiest_host.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "exporter/diagnosis/point_to_point_wait.h"

namespace nccl_pulse {
namespace {

constexpr double kMinLess = 0.1;  // seconds per second

struct Host {
  // What each process spends in calls, waiting for others included.
  std::map<const ProcessSnapshot*, double> inside;
  // Of which it is known on a communicator of the pipeline, where a stage waits.
  std::set<const ProcessSnapshot*> known;
  bool has_peers = false;
  bool shares_stages = false;  // with another host
};

bool IsCounted(const TimedCallSnapshot& /*call*/) { return true; }

// Of the host's processes on average.
double InsideOf(const Host& host) {
  double sum = 0;
  for (const auto& [process, inside] : host.inside) sum += inside;
  return sum / static_cast<double>(host.inside.size());
}

std::map<std::string, Host> HostsOf(const JobProcesses& job) {
  std::map<std::string, Host> hosts;
  for (const CommunicatorView* each : job.views) {
    const CommunicatorView& view = *each;
    std::set<std::string> names;
    const bool has_peers = view.has_point_to_point && !view.is_exchange;
    for (const RankView& rank : view.ranks) {
      if (rank.state != RankView::State::kLive) continue;
      names.insert(rank.process->hostname);
      Host& host = hosts[rank.process->hostname];
      host.has_peers |= has_peers;
      double& sum = host.inside[rank.process];
      const std::optional<double> share = ShareInCalls(rank, IsCounted);
      if (share && has_peers) host.known.insert(rank.process);
      // Elsewhere, a communicator with hardly any timed calls takes hardly any time.
      sum += share.value_or(0);
    }
    // Ranks that do the same: of others one may wait for another by right.
    if (view.spans_pipeline || has_peers) continue;
    for (const std::string& name : names) hosts[name].shares_stages |= names.size() > 1;
  }
  return hosts;
}

}  // namespace

std::string DoubtOfBusiestHost(const JobProcesses& job) {
  if (!job.are_all_seen) return "";
  const std::map<std::string, Host> hosts = HostsOf(job);
  if (hosts.size() < 2) return "";
  std::vector<std::pair<double, std::string>> order;
  for (const auto& [name, host] : hosts) {
    if (!host.has_peers || host.shares_stages || name.empty()) return "";
    if (host.known.size() != host.inside.size()) return "";
    order.emplace_back(InsideOf(host), name);
  }
  std::sort(order.begin(), order.end());
  const double less = order[1].first - order[0].first;
  if (less < kMinLess) return "";
  return absl::StrFormat(
      "The ranks of %s wait less for others than those of any other host, by %.2g seconds of every "
      "second. It is slow, or its stage of the pipeline has more to do: all ranks of that "
      "stage are there, so nothing tells which.",
      order[0].second, less);
}

}  // namespace nccl_pulse
