// Where `pulse status` asks, and how it gets in.
//
// Thread: any. Cost: reads the files that are named.
#ifndef EXPORTER_CLI_STATUS_ENDPOINT_H_
#define EXPORTER_CLI_STATUS_ENDPOINT_H_

#include <string>

#include "exporter/fleet/address.h"
#include "exporter/fleet/http_client.h"

namespace nccl_pulse {

struct StatusSecrets {
  TlsClientConfig tls;
  std::string user;           // "": none
  std::string password_file;  // its first line is the password
};

struct StatusEndpoint {
  Address address;
  FleetClientOptions client;
};

// `address`: "host:port", ":port", "port", "host", "http://...", "https://...", "unix:/path"; "" is
// this machine's default. A path behind it is left out: an address copied from a log ends with
// /metrics. TLS where the address or a file of `secrets` asks for it. False when that is no address,
// or something of `secrets` is wrong: `error` says what.
bool FindStatusEndpoint(const std::string& address, const StatusSecrets& secrets,
                        StatusEndpoint* endpoint, std::string* error);

}  // namespace nccl_pulse

#endif  // EXPORTER_CLI_STATUS_ENDPOINT_H_
