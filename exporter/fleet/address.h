// Parses addresses of servers: "host:port", "http://host:port/path", "https://[::1]:9410".
//
// Thread: any, no state.
#ifndef EXPORTER_FLEET_ADDRESS_H_
#define EXPORTER_FLEET_ADDRESS_H_

#include <cstdint>
#include <string>
#include <string_view>

namespace nccl_pulse {

struct Address {
  bool is_https = false;
  std::string host;  // without brackets
  uint16_t port = 0;
  bool has_port = false;  // the text has a port, or a scheme that implies one
  std::string path;       // without a slash at its end; "" or "/prefix"
  // Numeric address to use instead of resolving `host`. The request and TLS still name the host.
  std::string ip;

  std::string unix_path;  // not "": a socket of this machine, instead of host and port

  std::string name() const;  // "host:port" or "unix:/path"
};

// Encodes all but letters and digits, for a URL's query.
std::string PercentEncoded(std::string_view text);

// True if the host names this machine's loopback. Doesn't ask a resolver.
bool IsLoopback(std::string_view host);

// `otherwise_https` is the scheme of an address without one. The default port is the scheme's.
// Returns false and sets `error`, which quotes the text.
bool ParseAddress(std::string_view text, bool otherwise_https, Address* address,
                  std::string* error);

// Parses the address of an endpoint. Beyond ParseAddress, accepts a port of this host ("9410"),
// "unix:/path", or the URL of one of its pages, such as the one in a job's log
// ("http://host:9410/metrics"): drops the page, and keeps a path before it.
// `otherwise_port` is the port of an address without port and scheme.
bool ParseEndpointAddress(std::string_view text, bool otherwise_https, uint16_t otherwise_port,
                          Address* address, std::string* error);

}  // namespace nccl_pulse

#endif  // EXPORTER_FLEET_ADDRESS_H_
