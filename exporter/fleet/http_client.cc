#include "exporter/fleet/http_client.h"

#include <poll.h>
#include <sys/resource.h>

#include <algorithm>
#include <deque>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "exporter/base/plain_text.h"
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

// Returns how many of `wanted` connections can be open at once; raises the limit of descriptors
// where possible.
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
  std::size_t server, index;
  std::unique_ptr<Exchange> exchange;
};

const std::string& HostToFind(const Address& address) {
  return address.ip.empty() ? address.host : address.ip;
}

std::string DescribeStatus(const FleetAnswer& answer, std::string_view path) {
  switch (answer.status) {
    case 401:
    case 403:
      return absl::StrCat(answer.had_credentials ? "it does not accept these credentials ("
                                                 : "it asks for a password or a token (",
                          answer.status, ")");
    case 404:
      return absl::StrCat("it has no ", path, " (404): an older version, or another program");
    case 503:
      return "it is busy (503): its CPU budget for requests is spent";
    default:
      return absl::StrCat("it answers with status ", answer.status);
  }
}

// Returns ": " and the first line of an error's body, if that says more than the status. Other
// programs answer with pages of HTML.
std::string ReasonIn(const FleetAnswer& answer) {
  constexpr std::size_t kMostReasonBytes = 200;
  const std::string_view line = std::string_view(answer.body).substr(0, answer.body.find('\n'));
  const bool is_reason = !line.empty() && line.front() != '<' && answer.status != 404 &&
                         answer.status != 503 &&
                         !absl::StartsWith(line, absl::StrCat(answer.status));
  return is_reason ? absl::StrCat(": ", PlainText(line, kMostReasonBytes)) : "";
}

// Drops the longest answers, whose bytes are `sum` together, until `most` bytes hold the rest.
// Returns the new sum.
std::size_t FitInto(std::size_t most, std::size_t sum, const std::vector<Open>& open) {
  const auto held = [](const Open& each) {
    return each.exchange == nullptr ? 0 : each.exchange->held_bytes();
  };
  while (sum > most) {
    const auto longest = std::max_element(
        open.begin(), open.end(), [&](const Open& a, const Open& b) { return held(a) < held(b); });
    const std::size_t bytes = held(*longest);
    longest->exchange->Drop("its answer exceeds the memory left for all answers");
    sum -= std::min(sum, bytes);
    if (bytes == 0) break;
  }
  return sum;
}

class Asking {
 public:
  using Done = std::function<void(std::size_t index, FleetAnswer answer)>;

  Asking(const std::vector<FleetRequest>& requests, const FleetClientOptions& options,
         const Done& done)
      : requests_(requests),
        options_(options),
        done_(done),
        most_(MostAtOnce(options.most_at_once)),
        most_held_(options.most_bytes_together / 2) {  // the other half is for unpacking one answer
    std::set<std::string> hosts;
    std::map<std::string, std::size_t> servers;
    for (std::size_t i = 0; i < requests.size(); ++i) {
      const Address& address = requests[i].address;
      if (address.unix_path.empty()) hosts.insert(HostToFind(address));
      const auto [server, is_new] =
          servers.try_emplace(absl::StrCat(address.name(), "/", address.ip), servers_.size());
      if (is_new) servers_.emplace_back();
      servers_[server->second].push_back(i);
    }
    for (std::size_t i = 0; i < servers_.size(); ++i) ready_.push_back(i);
    resolved_ = ResolveHosts(hosts, options.patience);
  }

  void Run() {
    while (!ready_.empty() || !open_.empty()) {
      if (options_.stop != nullptr && options_.stop->load()) return Stop();
      const Time now = steady_clock::now();
      while (!ready_.empty() && open_.size() < most_) Begin(now);
      if (!open_.empty()) GoOn(now);
    }
  }

 private:
  void Begin(Time now) {
    const std::size_t server = ready_.front();
    ready_.pop_front();
    const std::size_t index = servers_[server].front();
    servers_[server].pop_front();
    const Address& address = requests_[index].address;
    const ResolvedHost host = address.unix_path.empty() ? resolved_.at(HostToFind(address))
                                                        : ResolvePath(address.unix_path);
    if (host.addresses.empty()) {
      FleetAnswer failed;
      failed.error = host.error;
      return End(server, index, std::move(failed));
    }
    auto exchange = std::make_unique<Exchange>(requests_[index], options_, host.addresses, now);
    if (exchange->Go(now)) return End(server, index, exchange->TakeAnswer(most_held_));
    open_.push_back({server, index, std::move(exchange)});
  }

  // Passes an answer on, and makes the server ready for its next request.
  void End(std::size_t server, std::size_t index, FleetAnswer answer) {
    std::deque<std::size_t>& rest = servers_[server];
    if (answer.error.empty() && answer.status != 503) {
      if (!rest.empty()) ready_.push_back(server);
    } else {
      FleetAnswer same = answer;
      same.body.clear();
      for (const std::size_t each : std::exchange(rest, {})) done_(each, same);
    }
    done_(index, std::move(answer));
  }

  void Stop() {
    for (Open& each : open_) each.exchange->Drop("stopped before it answered");
    EndEnded();
    for (const std::deque<std::size_t>& rest : servers_) {
      FleetAnswer stopped;
      stopped.error = "stopped before it was asked";
      for (const std::size_t each : rest) done_(each, stopped);
    }
  }

  void GoOn(Time now) {
    std::vector<pollfd> polled;
    // Until a signal's flag is seen.
    Time wake = options_.stop == nullptr ? Time::max() : now + milliseconds(100);
    std::size_t held = 0;
    for (const Open& each : open_) {
      polled.push_back({each.exchange->fd(), each.exchange->poll_events(), 0});
      wake = std::min(wake, each.exchange->end());
      wake = std::min(wake, each.exchange->wake());
      held += each.exchange->held_bytes();
    }
    const auto wait = duration_cast<milliseconds>(wake - now) + milliseconds(1);
    poll(polled.data(), polled.size(), static_cast<int>(std::max<int64_t>(wait.count(), 0)));
    now = steady_clock::now();
    for (std::size_t i = 0; i < open_.size(); ++i) {
      Exchange& exchange = *open_[i].exchange;
      if (exchange.has_ended()) continue;  // dropped for another one
      const bool is_due = polled[i].revents != 0 || exchange.wake() <= now;
      const std::size_t before = exchange.held_bytes();
      if (is_due) exchange.Go(now);
      if (is_due && exchange.is_pausing() && options_.on_busy) options_.on_busy();
      if (exchange.end() <= now) exchange.GiveUp();
      held -= std::min(held, before);
      if (exchange.has_ended()) {
        EndOne(&open_[i]);
      } else {
        held = FitInto(most_held_, held + exchange.held_bytes(), open_);
      }
    }
    EndEnded();
  }

  void EndOne(Open* one) {
    FleetAnswer answer = one->exchange->TakeAnswer(most_held_);
    one->exchange = nullptr;
    End(one->server, one->index, std::move(answer));
  }

  void EndEnded() {
    for (Open& each : open_) {
      if (each.exchange != nullptr && each.exchange->has_ended()) EndOne(&each);
    }
    open_.erase(std::remove_if(open_.begin(), open_.end(),
                               [](const Open& each) { return each.exchange == nullptr; }),
                open_.end());
  }

  const std::vector<FleetRequest>& requests_;
  const FleetClientOptions& options_;
  const Done& done_;
  const std::size_t most_, most_held_;
  std::map<std::string, ResolvedHost> resolved_;
  std::vector<std::deque<std::size_t>> servers_;  // by server: the requests not sent yet
  std::deque<std::size_t> ready_;                 // servers that can get their next request
  std::vector<Open> open_;
};

}  // namespace

std::string ProblemOf(const FleetAnswer& answer, std::string_view path) {
  if (!answer.error.empty()) return answer.error;
  return answer.status == 200 ? "" : absl::StrCat(DescribeStatus(answer, path), ReasonIn(answer));
}

void AskAll(const std::vector<FleetRequest>& requests, const FleetClientOptions& options,
            const std::function<void(std::size_t index, FleetAnswer answer)>& done) {
  Asking(requests, options, done).Run();
}

FleetAnswer Ask(const Address& address, const std::string& target,
                const FleetClientOptions& options) {
  FleetAnswer answer;
  AskAll({{address, target}}, options,
         [&answer](std::size_t /*index*/, FleetAnswer each) { answer = std::move(each); });
  return answer;
}

}  // namespace nccl_pulse
