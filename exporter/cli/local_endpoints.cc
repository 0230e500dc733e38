#include "exporter/cli/local_endpoints.h"

#include <cstddef>

namespace nccl_pulse {
namespace {

// Returns "" if the port is an endpoint that answers, or not in use.
std::string WhySilent(const FleetAnswer& answer) {
  if (!answer.error.empty()) return answer.is_connected ? answer.error : "";
  if (answer.status == 401) return "it asks for a password";
  if (answer.status == 400) return "status 400: it may need --https";
  return "";
}

}  // namespace

Address LocalAddress(uint16_t port, bool is_https) {
  Address address;
  address.is_https = is_https;
  address.host = "localhost";
  address.port = port;
  address.has_port = true;
  return address;
}

std::vector<Address> FindLocalEndpoints(const FleetClientOptions& client, bool is_https,
                                        std::vector<SilentPort>* silent) {
  std::vector<FleetRequest> requests;
  for (uint16_t port = kDefaultEndpointPort; port <= kLastLocalPort; ++port) {
    requests.push_back({LocalAddress(port, is_https), "/healthz"});
  }
  std::vector<bool> answers(requests.size());
  std::vector<std::string> why(requests.size());
  AskAll(requests, client, [&](std::size_t index, const FleetAnswer& answer) {
    answers[index] = answer.error.empty() && answer.status == 200 && answer.body == "ok\n";
    why[index] = WhySilent(answer);
  });
  std::vector<Address> found;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    if (answers[i]) found.push_back(requests[i].address);
    if (silent != nullptr && !why[i].empty()) silent->push_back({requests[i].address, why[i]});
  }
  return found;
}

}  // namespace nccl_pulse
