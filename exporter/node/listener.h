// The address to listen on, and the listening socket.
//
// Thread: any, no state. Nothing here looks up a name: a resolver would load modules into the job,
// take seconds and ask the network.
#ifndef EXPORTER_NODE_LISTENER_H_
#define EXPORTER_NODE_LISTENER_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "metrics/shared_descriptor.h"

namespace nccl_pulse {

struct ListenAddress {
  std::string host;   // numeric IPv4 or IPv6 (without brackets); "" for all interfaces
  uint16_t port = 0;  // 0: any free one
  std::string path;   // of a Unix socket, absolute; then the others mean nothing
};

inline constexpr uint16_t kDefaultPort = 9410;

// Takes "host:port", "[IPv6]:port", ":port" (all interfaces), "localhost:port" and "unix:/path"; a
// host alone has kDefaultPort. False, with what is wrong in `error`, for anything else.
bool ParseListenAddress(std::string_view text, ListenAddress* address, std::string* error);

// Whether it says that nobody is to be served: "off", or what else is written for it.
bool IsOff(std::string_view text);
// Where to listen in place of something that cannot be understood, such as a misspelt restriction:
// nowhere that somebody who could read it meant to exclude. Not for a Unix socket, which is open to
// some of this machine's users only: then "off".
std::string SafeAddress(std::string_view text);

struct Listener {
  uint16_t port = 0;    // the one that is bound
  std::string address;  // "127.0.0.1:9410", "[::]:9410"
};

// The address as a user would write it.
std::string SpellAddress(const ListenAddress& address);

// Opens this address and no other. All interfaces means IPv6 and IPv4 on one socket where the
// system has IPv6, else IPv4. 0, or errno: EADDRINUSE when somebody listens there, EEXIST when the
// path is a file that is no socket (one that nobody listens on any more is replaced). `socket` gets
// the descriptor, non-blocking and close-on-exec, as soon as it exists: what follows may take its
// time on a slow file system.
int OpenAt(const ListenAddress& address, SharedDescriptor* socket, Listener* listener);

}  // namespace nccl_pulse

#endif  // EXPORTER_NODE_LISTENER_H_
