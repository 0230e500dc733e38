// An address says where to ask: "host:port", "http://host:port/path", "https://[::1]:9410".
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
  bool has_port = false;  // it was said, or follows from a scheme that was
  std::string path;       // without a slash at its end; "" or "/prefix"
  // Numeric, where the host is not to be looked up: nobody else is asked. It is still called by the
  // host's name, in TLS, too.
  std::string ip;

  std::string unix_path;  // not "": that socket, on this machine, in place of host and port

  std::string name() const;  // "host:port" or "unix:/path", as people know it
};

// `otherwise_https`: of an address without a scheme. Without a port it is that of the scheme. False
// with what is wrong in `error`, which names the text.
bool ParseAddress(std::string_view text, bool otherwise_https, Address* address,
                  std::string* error);

// Parses the address of an endpoint. Besides the above it may be a port of this host ("9410"),
// "unix:/path", or the URL of one of its pages, such as the one in a job's log
// ("http://host:9410/metrics"): the page is dropped, and a path before it is kept.
// `otherwise_port`: of an address without port and scheme.
bool ParseEndpointAddress(std::string_view text, bool otherwise_https, uint16_t otherwise_port,
                          Address* address, std::string* error);

}  // namespace nccl_pulse

#endif  // EXPORTER_FLEET_ADDRESS_H_
