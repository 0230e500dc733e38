// FindLocalEndpoints finds the endpoints of this host, for commands without an address.
//
// Thread: any. Cost: queries all ports at once, and blocks until each has answered, refused, or
// timed out.
#ifndef EXPORTER_CLI_LOCAL_ENDPOINTS_H_
#define EXPORTER_CLI_LOCAL_ENDPOINTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "exporter/fleet/address.h"
#include "exporter/fleet/http_client.h"

namespace nccl_pulse {

// Port of an endpoint whose address names no port.
inline constexpr uint16_t kDefaultEndpointPort = 9410;

// Jobs of other users, or with their own endpoint, use the next ports.
inline constexpr uint16_t kLastLocalPort = 9417;

Address LocalAddress(uint16_t port, bool is_https);

// A port that accepts connections and may be an endpoint, but gave no data: it does not answer (its
// process is stopped, for example), or requires a password or TLS.
struct SilentPort {
  Address address;
  std::string why;  // "it accepts connections, but ..."
};

// Returns the healthy endpoints at this host's ports kDefaultEndpointPort to kLastLocalPort, and
// the silent ones in `silent`, both in port order.
std::vector<Address> FindLocalEndpoints(const FleetClientOptions& client, bool is_https,
                                        std::vector<SilentPort>* silent = nullptr);

}  // namespace nccl_pulse

#endif  // EXPORTER_CLI_LOCAL_ENDPOINTS_H_
