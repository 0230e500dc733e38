#include "exporter/node/handover.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "exporter/base/proc.h"
#include "exporter/base/text_hash.h"

namespace nccl_pulse {
namespace {

// Above the number of a node's processes. The kernel limits it to net.core.somaxconn.
constexpr int kBacklog = 1024;

constexpr std::string_view kNamePrefix = "nccl-pulse-";

struct AbstractAddress {
  sockaddr_un storage{};
  socklen_t size = 0;

  explicit AbstractAddress(const std::string& name) {
    storage.sun_family = AF_UNIX;
    // The first byte stays zero: an abstract name.
    const std::size_t length = std::min(name.size(), sizeof(storage.sun_path) - 1);
    std::memcpy(storage.sun_path + 1, name.data(), length);
    size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
  }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};

// Returns 0 or an errno.
int OpenSocket(SharedDescriptor* out) {
  const ForkGuard guard;
  const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return errno;
  out->Set(fd);
  return 0;
}

std::optional<uint32_t> PidNamespaceAt(const char* path) {
  constexpr ino_t kSystemsOwn = 0xEFFFFFFC;  // PROC_PID_INIT_INO of linux/proc_ns.h
  struct stat status {};
  if (stat(path, &status) != 0) return std::nullopt;
  return status.st_ino == kSystemsOwn ? 0 : static_cast<uint32_t>(status.st_ino);
}

}  // namespace

void HandoverMessage::SetText(std::string_view value) {
  text.fill('\0');
  std::memcpy(text.data(), value.data(), std::min(value.size(), text.size() - 1));
}

std::string HandoverMessage::Text() const {
  std::string value(text.data(), strnlen(text.data(), text.size()));
  std::replace_if(
      value.begin(), value.end(),
      [](char c) { return !absl::ascii_isprint(static_cast<unsigned char>(c)); }, '?');
  return value;
}

HandoverMessage MakeMessage(MessageType type) {
  HandoverMessage message;
  message.type = type;
  return message;
}

std::string HandoverName(uid_t user, const ListenAddress& address) {
  return address.path.empty()
             ? absl::StrCat(kNamePrefix, user, "-", address.port)
             // A path may be too long for a name.
             : absl::StrCat(kNamePrefix, user, "-unix-", absl::Hex(TextHash(address.path)));
}

int ListenOn(const std::string& name, SharedDescriptor* listener) {
  const AbstractAddress address(name);
  int error = OpenSocket(listener);
  if (error != 0) return error;
  if (bind(listener->get(), address.get(), address.size) != 0 ||
      listen(listener->get(), kBacklog) != 0) {
    error = errno;
    listener->Close();
  }
  return error;
}

int ConnectTo(const std::string& name, uid_t owner, SharedDescriptor* connection) {
  const AbstractAddress address(name);
  int error = OpenSocket(connection);
  if (error != 0) return error;
  Credentials server;
  error = connect(connection->get(), address.get(), address.size) == 0 ? 0 : errno;
  if (error == 0 && (!PeerCredentials(connection->get(), &server) || server.user != owner)) {
    error = EPERM;
  }
  if (error != 0) connection->Close();
  return error;
}

bool IsFree(const std::string& name) {
  const AbstractAddress address(name);
  SharedDescriptor socket;
  if (OpenSocket(&socket) != 0) return false;
  const bool free = bind(socket.get(), address.get(), address.size) == 0;
  socket.Close();
  return free;
}

std::vector<NameInUse> NamesInUse() {
  std::vector<NameInUse> names;
  const std::string sockets = ReadFile(kUnixSockets, kMostUnixSockets);
  for (const std::string_view line : absl::StrSplit(sockets, '\n')) {
    // The name is the last column, with '@' for the zero byte.
    const std::size_t at = line.find(absl::StrCat("@", kNamePrefix));
    if (at == line.npos) continue;
    const std::string name(line.substr(at + 1));
    const std::vector<std::string> parts =
        absl::StrSplit(name.substr(kNamePrefix.size()), absl::MaxSplits('-', 1));
    uint32_t user = 0;
    uint32_t port = 0;
    if (parts.size() != 2 || !absl::SimpleAtoi(parts[0], &user) ||
        !absl::SimpleAtoi(parts[1], &port) || port == 0 || port > 65535) {
      continue;
    }
    const bool known = std::any_of(names.begin(), names.end(),
                                   [&](const NameInUse& each) { return each.name == name; });
    if (!known) names.push_back({name, user, static_cast<uint16_t>(port)});
  }
  return names;
}

bool IsOneUser(uid_t user, std::string_view overflow_uid, std::string_view uid_map) {
  uid_t overflow = 0;
  // DEFAULT_OVERFLOWUID of Linux' include/linux/highuid.h.
  if (!absl::SimpleAtoi(overflow_uid, &overflow)) overflow = 65534;
  if (user != overflow) return true;
  // If all users are mapped, as outside of user namespaces, the number is that of one user.
  uint64_t mapped = 0;
  for (const std::string_view line : absl::StrSplit(uid_map, '\n')) {
    const std::vector<std::string_view> numbers = absl::StrSplit(line, ' ', absl::SkipEmpty());
    uint64_t count = 0;
    if (numbers.size() == 3 && absl::SimpleAtoi(numbers[2], &count)) mapped += count;
  }
  constexpr uint64_t kAllUsers = 0xFFFFFFFF;  // -1 is none
  return mapped >= kAllUsers;
}

bool PeerCredentials(int connection, Credentials* credentials) {
  ucred peer{};
  socklen_t size = sizeof(peer);
  if (getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 || size != sizeof(peer)) {
    return false;
  }
  credentials->pid = peer.pid;
  credentials->user = peer.uid;
  return peer.uid != geteuid() || IsOneUser(peer.uid, ReadFile("/proc/sys/kernel/overflowuid"),
                                            ReadFile("/proc/self/uid_map"));
}

std::optional<uint32_t> PidNamespaceOf(pid_t pid) {
  return PidNamespaceAt(absl::StrCat("/proc/", pid, "/ns/pid").c_str());
}

uint32_t OwnPidNamespace() { return PidNamespaceAt("/proc/self/ns/pid").value_or(0); }

bool Send(int connection, const HandoverMessage& message, int memory) {
  iovec part = {const_cast<HandoverMessage*>(&message), sizeof(message)};  // not written to
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  if (memory >= 0) {
    header.msg_control = control.data();
    header.msg_controllen = control.size();
    cmsghdr* passed = CMSG_FIRSTHDR(&header);
    passed->cmsg_level = SOL_SOCKET;
    passed->cmsg_type = SCM_RIGHTS;
    passed->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(passed), &memory, sizeof(memory));
  }
  return sendmsg(connection, &header, MSG_NOSIGNAL | MSG_DONTWAIT) ==
         static_cast<ssize_t>(sizeof(message));
}

Received Receive(int connection, HandoverMessage* message, SharedDescriptor* memory,
                 std::string* error) {
  // One extra byte reveals longer messages. Control space for one descriptor only: CMSG_SPACE's
  // padding would fit a second one. The kernel closes all others.
  std::array<char, sizeof(HandoverMessage) + 1> bytes;
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  iovec part = {bytes.data(), bytes.size()};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  header.msg_control = control.data();
  header.msg_controllen = CMSG_LEN(sizeof(int));
  int fd = -1;
  ssize_t size = 0;
  {
    const ForkGuard guard;
    size = recvmsg(connection, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (size < 0 && errno == ECONNRESET) {
      // Reported once if the peer closed while our data was unread (Linux, net/unix/af_unix.c,
      // unix_release_sock). What it sent before, such as a refusal, can still be read.
      header.msg_controllen = CMSG_LEN(sizeof(int));
      size = recvmsg(connection, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    }
    if (size < 0) {
      const bool later = errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
      return later ? Received::kNothing : Received::kClosed;
    }
    for (cmsghdr* passed = CMSG_FIRSTHDR(&header); passed != nullptr;
         passed = CMSG_NXTHDR(&header, passed)) {
      if (passed->cmsg_level != SOL_SOCKET || passed->cmsg_type != SCM_RIGHTS) continue;
      if (passed->cmsg_len < CMSG_LEN(sizeof(int))) continue;
      std::memcpy(&fd, CMSG_DATA(passed), sizeof(fd));
      memory->Close();
      memory->Set(fd);
    }
  }
  if (size == 0) {
    memory->Close();
    return Received::kClosed;
  }
  *error = "";
  if ((header.msg_flags & MSG_CTRUNC) != 0) {
    *error = "its memory did not arrive: more than one descriptor, or no descriptor is free here";
  } else if (size != static_cast<ssize_t>(sizeof(*message))) {
    *error = absl::StrCat("a message of ", size, " bytes");
  } else {
    std::memcpy(message, bytes.data(), sizeof(*message));
    if (message->magic != kHandoverMagic) {
      *error = "a message of another protocol";
    } else if (message->version != kHandoverVersion) {
      *error = absl::StrCat("hand-over version ", message->version, ", this side knows ",
                            kHandoverVersion);
    }
  }
  if (error->empty()) return Received::kMessage;
  memory->Close();
  return Received::kBad;
}

}  // namespace nccl_pulse
