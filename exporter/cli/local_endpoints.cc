#include "exporter/cli/local_endpoints.h"

#include <cstddef>

namespace nccl_pulse {

Address LocalAddress(uint16_t port, bool is_https) {
  Address address;
  address.is_https = is_https;
  address.host = "localhost";
  address.port = port;
  address.has_port = true;
  return address;
}

std::vector<Address> FindLocalEndpoints(const FleetClientOptions& client, bool is_https) {
  std::vector<FleetRequest> requests;
  for (uint16_t port = kDefaultEndpointPort; port <= kLastLocalPort; ++port) {
    requests.push_back({LocalAddress(port, is_https), "/healthz"});
  }
  std::vector<bool> answers(requests.size());
  AskAll(requests, client, [&answers](std::size_t index, const FleetAnswer& answer) {
    answers[index] = answer.error.empty() && answer.status == 200 && answer.body == "ok\n";
  });
  std::vector<Address> found;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    if (answers[i]) found.push_back(requests[i].address);
  }
  return found;
}

}  // namespace nccl_pulse
