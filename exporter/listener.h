// The address to listen on, and the listening socket.
//
// Thread: any, no state. Nothing here looks up a name: a resolver would load modules into the job,
// take seconds and ask the network.
#ifndef EXPORTER_LISTENER_H_
#define EXPORTER_LISTENER_H_

#include <cstdint>
#include <string>
#include <string_view>

namespace nccl_pulse {

struct ListenAddress {
  std::string host;   // numeric IPv4 or IPv6 (without brackets); "" for all interfaces
  uint16_t port = 0;  // 0: any free one
};

// Takes "host:port", "[IPv6]:port", ":port" (all interfaces) and "localhost:port". False, with what
// is wrong in `error`, for anything else.
bool ParseListenAddress(std::string_view text, ListenAddress* address, std::string* error);

struct Listener {
  int fd = -1;          // non-blocking, close-on-exec, listening
  uint16_t port = 0;    // the one that is bound
  std::string address;  // "127.0.0.1:9410", "[::]:9410"
};

// How many ports after the wanted one are tried when it is in use.
inline constexpr int kFurtherPorts = 100;

// Opens the socket. All interfaces means IPv6 and IPv4 on one socket where the system has IPv6,
// else IPv4. False, with the reason in `error`, when the address cannot be used at all (not this
// machine's, port not permitted) or all ports that may be tried are in use. The caller owns the
// descriptor.
bool OpenListener(const ListenAddress& address, Listener* listener, std::string* error);

}  // namespace nccl_pulse

#endif  // EXPORTER_LISTENER_H_
