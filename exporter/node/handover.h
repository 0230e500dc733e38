// The messages by which the processes of a node hand their segments to the server, over an abstract
// Unix socket.
//
//   process                                        server (a process of the job, or the agent)
//      | ---- kHello, with its memfd (SCM_RIGHTS) ---> |   checks and maps the memory
//      | <--- kWelcome: where the endpoint is -------- |   or kRefused: why; then it closes
//      | <--- kMembers: how many are here, when that   |
//      |      changes                                  |
//      | ---- kGoodbye: ends in order ---------------> |   what ends without it was lost
//
//   agent                                          server (a process of the job)
//      | ---- kYield --------------------------------> |
//      | <--- kYielded: how many will come ----------- |   tells its members kReelect, closes all
//
// The socket is SOCK_SEQPACKET: a message is whole or it is none, so there is nothing to put
// together and nothing to wait for. Every message has kMessageBytes; any other size ends the
// connection. Its name begins with a zero byte, so the kernel forgets it with the process, it
// belongs to the network namespace as the port does, and no volume has to be shared.
//
// Anybody may connect to such a name, or take it. So both sides ask the kernel who the other is
// (SO_PEERCRED) before they say or believe anything.
//
// Thread: any, no state. Nothing here waits: all sockets are non-blocking.
#ifndef EXPORTER_NODE_HANDOVER_H_
#define EXPORTER_NODE_HANDOVER_H_

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "exporter/node/listener.h"
#include "metrics/shared_descriptor.h"

namespace nccl_pulse {

inline constexpr uint64_t kHandoverMagic = 0x31444e485053434eULL;  // "NCSPHND1" read as bytes
inline constexpr uint32_t kHandoverVersion = 1;
inline constexpr std::size_t kMessageBytes = 256;

enum class MessageType : uint32_t {
  kHello = 1,
  kWelcome = 2,
  kRefused = 3,
  kMembers = 4,
  kGoodbye = 5,
  kYield = 6,
  kYielded = 7,
  kReelect = 8,
  // Of a control socket (control_socket.h).
  kSet = 9,
  kListSettings = 10,
  kSetting = 11,
  kDone = 12,
  kNotHere = 13,
};

// Explicit sizes, little-endian, no padding.
struct HandoverMessage {
  uint64_t magic = kHandoverMagic;
  uint32_t version = kHandoverVersion;
  MessageType type{};
  uint32_t members = 0;   // kWelcome, kMembers, kYielded
  uint32_t delay_ms = 0;  // kReelect: how long to leave the port to somebody else
                          // kSet: after which it ends by itself; 0: it does not
  uint32_t port = 0;      // kWelcome; 0 for a Unix socket
  uint32_t reserved = 0;
  std::array<char, 224> text{};  // kWelcome: the endpoint's address; kRefused: why; zero-terminated

  void SetText(std::string_view value);
  // Printable, whatever the other side sent.
  std::string Text() const;
};
static_assert(sizeof(HandoverMessage) == kMessageBytes);

HandoverMessage MakeMessage(MessageType type);

// The socket's name without its leading zero byte: "nccl-pulse-1000-9410". Users do not meet.
std::string HandoverName(uid_t user, const ListenAddress& address);

// Opens the socket under this name. 0, or errno: EADDRINUSE when somebody has the name.
int ListenOn(const std::string& name, SharedDescriptor* listener);
// 0, or errno: ECONNREFUSED when nobody has the name, EPERM when who has it is not `owner`, EAGAIN
// when too many are waiting.
int ConnectTo(const std::string& name, uid_t owner, SharedDescriptor* connection);
// Whether nobody has the name, found out without disturbing whoever has.
bool IsFree(const std::string& name);

// All Unix sockets of this network namespace, and more of that file than there ever is.
inline constexpr char kUnixSockets[] = "/proc/net/unix";
inline constexpr std::size_t kMostUnixSockets = 64 << 20;

// The names that are in use in this network namespace, with the user and port that they say.
struct NameInUse {
  std::string name;
  uid_t user;
  uint16_t port;
};
std::vector<NameInUse> NamesInUse();

struct Credentials {
  pid_t pid = 0;  // 0: of a PID namespace that is not seen from here
  uid_t user = static_cast<uid_t>(-1);
};
// False also for a user that could be several (IsOneUser), if this process runs as that one.
bool PeerCredentials(int connection, Credentials* credentials);
// Within a user namespace the kernel names every user whom the namespace does not have by one
// number. False for that one. The texts are those of /proc/sys/kernel/overflowuid and
// /proc/self/uid_map; an empty one says nothing.
bool IsOneUser(uid_t user, std::string_view overflow_uid, std::string_view uid_map);
// The inode of the PID namespace that a process is in, by its pid as it is seen here; 0: the
// system's own. Empty: it has ended, or it is another user's.
std::optional<uint32_t> PidNamespaceOf(pid_t pid);
// Of this process; 0: the system's own, or unknown.
uint32_t OwnPidNamespace();

// `memory`: a descriptor to pass along, or -1. False when the other side is gone or does not read.
bool Send(int connection, const HandoverMessage& message, int memory = -1);

enum class Received {
  kMessage,
  kNothing,  // yet
  kClosed,   // or failed
  kBad,      // no message of this protocol; `error` says why
};
// `memory` gets the descriptor that came along, if one did.
Received Receive(int connection, HandoverMessage* message, SharedDescriptor* memory,
                 std::string* error);

}  // namespace nccl_pulse

#endif  // EXPORTER_NODE_HANDOVER_H_
