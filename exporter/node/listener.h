// Parses the address to listen on, and opens the listening socket.
//
// Thread: any, no state. Never resolves names: a resolver would load modules into the job, take
// seconds and use the network.
#ifndef EXPORTER_NODE_LISTENER_H_
#define EXPORTER_NODE_LISTENER_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "metrics/shared_descriptor.h"

namespace nccl_pulse {

struct ListenAddress {
  std::string host;   // numeric IPv4 or IPv6 (without brackets); "" for all interfaces
  uint16_t port = 0;  // 0: any free port
  std::string path;   // absolute path of a Unix socket; if set, `host` and `port` are ignored
};

inline constexpr uint16_t kDefaultPort = 9410;

// Parses "host:port", "[IPv6]:port", ":port" (all interfaces), "localhost:port" or "unix:/path". A
// host alone gets kDefaultPort. Returns false, with the reason in `error`, for anything else.
bool ParseListenAddress(std::string_view text, ListenAddress* address, std::string* error);

// True if `text` is "off" or an equivalent.
bool IsOff(std::string_view text);
// Returns the address to use if `text` is invalid, for example a misspelled restriction: localhost,
// since the setting may have meant to exclude other hosts. Returns "off" for a Unix socket, which
// may be limited to some of this machine's users.
std::string SafeAddress(std::string_view text);

struct Listener {
  uint16_t port = 0;    // the bound port
  std::string address;  // "127.0.0.1:9410", "[::]:9410"
};

// Returns the address as a user would write it.
std::string SpellAddress(const ListenAddress& address);

// Listens on exactly this address. "" means IPv6 and IPv4 on one socket, or only IPv4 if the system
// lacks IPv6. Returns 0 or an errno: EADDRINUSE if the address is taken, EEXIST if the path is not
// a socket. A socket without a listener is replaced. `socket` gets the descriptor, non-blocking and
// close-on-exec. For a Unix socket, waits at most kFilePatience for the file system.
int OpenAt(const ListenAddress& address, SharedDescriptor* socket, Listener* listener);

}  // namespace nccl_pulse

#endif  // EXPORTER_NODE_LISTENER_H_
