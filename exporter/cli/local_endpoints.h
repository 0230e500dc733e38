// The endpoints of this host, for commands that were given no address.
//
// Thread: any. Cost: asks all ports at once, and blocks until each has answered, refused, or let
// the client's patience pass.
#ifndef EXPORTER_CLI_LOCAL_ENDPOINTS_H_
#define EXPORTER_CLI_LOCAL_ENDPOINTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "exporter/fleet/address.h"
#include "exporter/fleet/http_client.h"

namespace nccl_pulse {

// Of an endpoint whose address has none.
inline constexpr uint16_t kDefaultEndpointPort = 9410;

// Jobs of other users, or with another endpoint, are at the next ports.
inline constexpr uint16_t kLastLocalPort = 9417;

Address LocalAddress(uint16_t port, bool is_https);

// Something that listens there and may be an endpoint: it does not answer (its process was stopped,
// say), or it asks for a password or TLS.
struct SilentPort {
  Address address;
  std::string why;  // "it accepts connections, but ..."
};

// Those at the default port and the next ones, to kLastLocalPort, that say of themselves that they
// are healthy; in the order of their ports, as are the silent ones.
std::vector<Address> FindLocalEndpoints(const FleetClientOptions& client, bool is_https,
                                        std::vector<SilentPort>* silent = nullptr);

}  // namespace nccl_pulse

#endif  // EXPORTER_CLI_LOCAL_ENDPOINTS_H_
