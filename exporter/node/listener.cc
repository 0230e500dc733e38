#include "exporter/node/listener.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "exporter/base/files.h"
#include "exporter/base/patient_thread.h"

namespace nccl_pulse {
namespace {

// Waiting connections cost the job nothing. This leaves room for a burst: a scrape behind it would
// otherwise be dropped and retried a second later. The kernel limits it to net.core.somaxconn.
constexpr int kBacklog = 4096;

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t size = 0;

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};

bool MakeSocketAddress(const std::string& host, uint16_t port, SocketAddress* out) {
  auto* v4 = reinterpret_cast<sockaddr_in*>(&out->storage);
  if (inet_pton(AF_INET, host.c_str(), &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
    v4->sin_port = htons(port);
    out->size = sizeof(*v4);
    return true;
  }
  auto* v6 = reinterpret_cast<sockaddr_in6*>(&out->storage);
  if (inet_pton(AF_INET6, host.c_str(), &v6->sin6_addr) == 1) {
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(port);
    out->size = sizeof(*v6);
    return true;
  }
  return false;
}

std::string Spell(const std::string& host, uint16_t port) {
  const bool is_v6 = host.find(':') != host.npos;
  return absl::StrCat(is_v6 ? "[" : "", host, is_v6 ? "]:" : ":", port);
}

// Returns 0 or an errno.
int OpenSocket(int family, SharedDescriptor* out) {
  const ForkGuard guard;
  const int fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return errno;
  out->Set(fd);
  return 0;
}

// Returns 0, or the errno of the call that failed.
int TryListen(const std::string& host, uint16_t port, bool dual_stack, SharedDescriptor* socket,
              Listener* listener) {
  SocketAddress address;
  if (!MakeSocketAddress(host, port, &address)) return EINVAL;
  const int family = address.storage.ss_family;
  if (const int error = OpenSocket(family, socket); error != 0) return error;
  const int fd = socket->get();
  const int on = 1;
  const int v6_only = dual_stack ? 0 : 1;
  // Allows a port with connections in TIME_WAIT, but not one with a listener.
  bool ok = setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) == 0;
  if (family == AF_INET6) {
    ok = ok && setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &v6_only, sizeof(v6_only)) == 0;
  }
  // Two sockets may be bound before either listens. Then listen() reports EADDRINUSE.
  ok = ok && bind(fd, address.get(), address.size) == 0 && listen(fd, kBacklog) == 0;
  SocketAddress bound;
  bound.size = sizeof(bound.storage);
  ok = ok && getsockname(fd, reinterpret_cast<sockaddr*>(&bound.storage), &bound.size) == 0;
  if (!ok) {
    const int error = errno;
    socket->Close();
    return error;
  }
  // Both families have the port at the same offset.
  listener->port = ntohs(reinterpret_cast<const sockaddr_in*>(&bound.storage)->sin_port);
  listener->address = Spell(host, listener->port);
  return 0;
}

int TryPort(const std::string& host, uint16_t port, SharedDescriptor* socket, Listener* listener) {
  if (!host.empty()) return TryListen(host, port, /*dual_stack=*/false, socket, listener);
  const int error = TryListen("::", port, /*dual_stack=*/true, socket, listener);
  const bool no_ipv6 = error == EAFNOSUPPORT || error == EADDRNOTAVAIL || error == ENOPROTOOPT;
  return no_ipv6 ? TryListen("0.0.0.0", port, /*dual_stack=*/false, socket, listener) : error;
}

constexpr std::string_view kUnixPrefix = "unix:";
constexpr std::string_view kLocalhost = "localhost";

sockaddr_un UnixAddress(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), std::min(path.size(), sizeof(address.sun_path) - 1));
  return address;
}

// Frees `path` if it is a socket without a listener. Returns 0 if the path is free, or an errno.
int MakeRoomAt(const std::string& path, const sockaddr_un& address) {
  struct stat status {};
  if (lstat(path.c_str(), &status) != 0) return errno == ENOENT ? 0 : errno;
  if (!S_ISSOCK(status.st_mode)) return EEXIST;
  SharedDescriptor socket;
  int error = OpenSocket(AF_UNIX, &socket);
  if (error != 0) return error;
  error = connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0
              ? 0
              : errno;
  socket.Close();
  if (error != ECONNREFUSED) return EADDRINUSE;
  return unlink(path.c_str()) == 0 || errno == ENOENT ? 0 : errno;
}

int BindUnixSocket(const std::string& path, SharedDescriptor* socket) {
  const sockaddr_un address = UnixAddress(path);
  int error = MakeRoomAt(path, address);
  if (error == 0) error = OpenSocket(AF_UNIX, socket);
  if (error != 0) return error;
  const int fd = socket->get();
  if (bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 ||
      listen(fd, kBacklog) != 0) {
    error = errno;
    socket->Close();
  }
  return error;
}

// The path may be on an unresponsive file system.
int OpenUnixSocket(const std::string& path, SharedDescriptor* socket, Listener* listener) {
  struct Binding {
    ~Binding() { socket.Close(); }
    SharedDescriptor socket;
    int error = 0;
  };
  const auto binding = std::make_shared<Binding>();
  const int late = RunWithin(
      kFilePatience, [path, binding] { binding->error = BindUnixSocket(path, &binding->socket); });
  if (late != 0) return late;
  if (binding->error != 0) return binding->error;
  socket->TakeFrom(&binding->socket);
  listener->port = 0;
  listener->address = absl::StrCat(kUnixPrefix, path);
  return 0;
}

bool ParseUnixPath(std::string_view text, ListenAddress* address, std::string* error) {
  const std::string_view path = text.substr(kUnixPrefix.size());
  if (path.empty() || path[0] != '/' || path.size() >= sizeof(sockaddr_un::sun_path)) {
    *error = absl::StrCat("'", text,
                          "' is not a Unix socket: write unix: and an absolute path of at most ",
                          sizeof(sockaddr_un::sun_path) - 1, " bytes");
    return false;
  }
  *address = {"", 0, std::string(path)};
  return true;
}

}  // namespace

std::string SpellAddress(const ListenAddress& address) {
  return address.path.empty() ? Spell(address.host, address.port)
                              : absl::StrCat(kUnixPrefix, address.path);
}

int OpenAt(const ListenAddress& address, SharedDescriptor* socket, Listener* listener) {
  return address.path.empty() ? TryPort(address.host, address.port, socket, listener)
                              : OpenUnixSocket(address.path, socket, listener);
}

bool ParseListenAddress(std::string_view text, ListenAddress* address, std::string* error) {
  if (text.substr(0, kUnixPrefix.size()) == kUnixPrefix) return ParseUnixPath(text, address, error);
  const bool is_host = text == kLocalhost || (!text.empty() && text.back() == ']') ||
                       text.find_first_not_of("0123456789.") == text.npos;
  const std::size_t colon = is_host ? text.size() : text.rfind(':');
  if (colon == text.npos) {
    *error = absl::StrCat("'", text, "' has no port: write host:port, :port or unix:/path");
    return false;
  }
  std::string_view host = text.substr(0, colon);
  const std::string port =
      is_host ? absl::StrCat(kDefaultPort) : std::string(text.substr(colon + 1));
  // Digits only: no sign, no space.
  uint32_t number = 0;
  if (port.empty() || port.find_first_not_of("0123456789") != port.npos ||
      !absl::SimpleAtoi(port, &number) || number > 65535) {
    *error =
        absl::StrCat("'", port, "' in '", text, "' is not a port: write a number from 0 to 65535");
    return false;
  }
  const bool bracketed = host.size() >= 2 && host.front() == '[' && host.back() == ']';
  if (bracketed) host = host.substr(1, host.size() - 2);
  address->path.clear();
  address->host = host == kLocalhost ? "127.0.0.1" : std::string(host);
  address->port = static_cast<uint16_t>(number);
  const bool has_colon = host.find(':') != host.npos;
  SocketAddress unused;
  if (bracketed != has_colon ||
      ((is_host || !address->host.empty()) && !MakeSocketAddress(address->host, 0, &unused))) {
    *error = absl::StrCat(
        "'", text,
        "' is not an address to listen on: the host is a numeric IPv4 address, an IPv6 "
        "address in brackets, localhost, or left out for all interfaces");
    return false;
  }
  return true;
}

bool IsOff(std::string_view text) {
  for (const char* word : {"off", "none", "no", "false", "0", "disable", "disabled"}) {
    if (absl::EqualsIgnoreCase(text, word)) return true;
  }
  return false;
}

std::string SafeAddress(std::string_view text) {
  return absl::StartsWithIgnoreCase(text, kUnixPrefix) ? "off"
                                                       : absl::StrCat("127.0.0.1:", kDefaultPort);
}

}  // namespace nccl_pulse
