// The endpoints of this host, for commands that were given no address.
//
// Thread: any. Cost: asks all ports at once, and blocks until each has answered, refused, or let
// the client's patience pass.
#ifndef EXPORTER_CLI_LOCAL_ENDPOINTS_H_
#define EXPORTER_CLI_LOCAL_ENDPOINTS_H_

#include <cstdint>
#include <vector>

#include "exporter/fleet/address.h"
#include "exporter/fleet/http_client.h"

namespace nccl_pulse {

// Of an endpoint whose address has none.
inline constexpr uint16_t kDefaultEndpointPort = 9410;

// Jobs of other users, or with another endpoint, are at the next ports.
inline constexpr uint16_t kLastLocalPort = 9417;

Address LocalAddress(uint16_t port, bool is_https);

// Those at the default port and the next ones, to kLastLocalPort, that say of themselves that they
// are healthy; in the order of their ports.
std::vector<Address> FindLocalEndpoints(const FleetClientOptions& client, bool is_https);

}  // namespace nccl_pulse

#endif  // EXPORTER_CLI_LOCAL_ENDPOINTS_H_
