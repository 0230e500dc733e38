// Where `pulse status` asks, and how it gets in.
//
// Thread: any. Cost: reads the files that are named.
#ifndef EXPORTER_CLI_STATUS_ENDPOINT_H_
#define EXPORTER_CLI_STATUS_ENDPOINT_H_

#include <string>

#include "exporter/fleet/address.h"
#include "exporter/fleet/http_client.h"

namespace nccl_pulse {

struct StatusEndpoint {
  Address address;
  FleetClientOptions client;
};

// `address`: "host:port", ":port", "port", "host", "http://...", "https://...", "unix:/path"; "" is
// this machine's default. A path behind it is left out: an address copied from a log ends with
// /metrics. TLS where the address or `is_https` asks for it. False when that is no address, or
// `client` has no TLS: `error` says what.
bool FindStatusEndpoint(const std::string& address, bool is_https, const FleetClientOptions& client,
                        StatusEndpoint* endpoint, std::string* error);

}  // namespace nccl_pulse

#endif  // EXPORTER_CLI_STATUS_ENDPOINT_H_
