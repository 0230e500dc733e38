#include "exporter/fleet/http_client.h"

#include <poll.h>
#include <sys/resource.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "exporter/fleet/http_exchange.h"
#include "exporter/fleet/resolver.h"

namespace nccl_pulse {
namespace {

using std::chrono::duration_cast;
using std::chrono::milliseconds;
using std::chrono::steady_clock;
using Time = Exchange::Time;

// For files, standard streams and name servers.
constexpr std::size_t kOtherDescriptors = 64;

// As many connections as the process may have descriptors for.
std::size_t MostAtOnce(std::size_t wanted) {
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return std::min<std::size_t>(wanted, 128);
  if (limit.rlim_cur < wanted + kOtherDescriptors && limit.rlim_cur < limit.rlim_max) {
    limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, wanted + kOtherDescriptors);
    setrlimit(RLIMIT_NOFILE, &limit);
    getrlimit(RLIMIT_NOFILE, &limit);
  }
  const std::size_t most = limit.rlim_cur > kOtherDescriptors + 1
                               ? static_cast<std::size_t>(limit.rlim_cur) - kOtherDescriptors
                               : 1;
  return std::clamp<std::size_t>(wanted, 1, most);
}

struct Open {
  std::size_t index;
  std::unique_ptr<Exchange> exchange;
};

const std::string& HostToFind(const Address& address) {
  return address.ip.empty() ? address.host : address.ip;
}

std::string DescribeStatus(int status, std::string_view path) {
  switch (status) {
    case 401:
    case 403:
      return absl::StrCat("it does not accept these credentials (", status, ")");
    case 404:
      return absl::StrCat("it has no ", path, " (404): an older version, or another program");
    case 503:
      return "it has no processor time left for an answer (503)";
    default:
      return absl::StrCat("it answers with status ", status);
  }
}

}  // namespace

std::string ProblemOf(const FleetAnswer& answer, std::string_view path) {
  if (!answer.error.empty()) return answer.error;
  return answer.status == 200 ? "" : DescribeStatus(answer.status, path);
}

void AskAll(const std::vector<FleetRequest>& requests, const FleetClientOptions& options,
            const std::function<void(std::size_t index, FleetAnswer answer)>& done) {
  std::set<std::string> hosts;
  for (const FleetRequest& request : requests) {
    if (request.address.unix_path.empty()) hosts.insert(HostToFind(request.address));
  }
  const std::map<std::string, ResolvedHost> resolved = ResolveHosts(hosts, options.patience);
  const std::size_t most = MostAtOnce(options.most_at_once);
  std::vector<Open> open;
  std::vector<pollfd> polled;
  std::size_t next = 0;
  while (next < requests.size() || !open.empty()) {
    Time now = steady_clock::now();
    while (next < requests.size() && open.size() < most) {
      const std::size_t index = next++;
      const Address& address = requests[index].address;
      const ResolvedHost host = address.unix_path.empty() ? resolved.at(HostToFind(address))
                                                          : ResolvePath(address.unix_path);
      if (host.addresses.empty()) {
        FleetAnswer failed;
        failed.error = host.error;
        done(index, std::move(failed));
        continue;
      }
      auto exchange = std::make_unique<Exchange>(requests[index], options, host.addresses,
                                                 now + options.patience);
      if (exchange->Go(now)) {
        done(index, exchange->TakeAnswer());
      } else {
        open.push_back({index, std::move(exchange)});
      }
    }
    if (open.empty()) continue;
    polled.clear();
    Time wake = Time::max();
    for (const Open& each : open) {
      polled.push_back({each.exchange->fd(), each.exchange->poll_events(), 0});
      wake = std::min(wake, each.exchange->end());
      if (each.exchange->fd() < 0) wake = std::min(wake, each.exchange->wake());
    }
    const auto wait = duration_cast<milliseconds>(wake - now) + milliseconds(1);
    poll(polled.data(), polled.size(), static_cast<int>(std::max<int64_t>(wait.count(), 0)));
    now = steady_clock::now();
    std::size_t kept = 0;
    for (std::size_t i = 0; i < open.size(); ++i) {
      Exchange& exchange = *open[i].exchange;
      const bool is_due = polled[i].revents != 0 || (polled[i].fd < 0 && exchange.wake() <= now);
      bool has_ended = is_due && exchange.Go(now);
      if (!has_ended && exchange.end() <= now) {
        exchange.GiveUp();
        has_ended = true;
      }
      if (has_ended) {
        done(open[i].index, exchange.TakeAnswer());
        continue;
      }
      if (kept != i) open[kept] = std::move(open[i]);
      ++kept;
    }
    open.resize(kept);
  }
}

FleetAnswer Ask(const Address& address, const std::string& target,
                const FleetClientOptions& options) {
  FleetAnswer answer;
  AskAll({{address, target}}, options,
         [&answer](std::size_t /*index*/, FleetAnswer each) { answer = std::move(each); });
  return answer;
}

}  // namespace nccl_pulse
