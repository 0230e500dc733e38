// Defines the messages by which a node's processes hand their segments to the server, over an
// abstract Unix socket.
//
//   process                                        server (a process of the job, or the agent)
//      | ---- kHello, with its memfd (SCM_RIGHTS) ---> |   checks and maps the memory
//      | <--- kWelcome: where the endpoint is -------- |   or kRefused: why; then it closes
//      | <--- kMembers: how many are here, when that   |
//      |      changes                                  |
//      | ---- kGoodbye: exits normally --------------> |   without it, the process was lost
//
//   agent                                          server (a process of the job)
//      | ---- kYield: its port ----------------------> |   or kRefused: why
//      | <--- kYielded: how many will come ----------- |   tells its members kReelect, closes all
//
// The socket is SOCK_SEQPACKET: messages arrive whole or not at all, so nothing is reassembled.
// Every message has kMessageBytes; any other size ends the connection. The name begins with a zero
// byte. So the kernel frees it with the process, it belongs to the network namespace as the port
// does, and no volume has to be shared.
//
// Any process may connect to such a name, or take it. So each side asks the kernel who the other is
// (SO_PEERCRED) before it sends or trusts anything.
//
// Thread: any, no state. Never waits: all sockets are non-blocking.
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
  // For control sockets (control_socket.h).
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
  uint32_t members = 0;   // kWelcome, kMembers: the server's members; kYielded: to expect
  uint32_t delay_ms = 0;  // kReelect: how long to leave the port to another process
                          // kSet: time until the setting is reverted; 0: never
  uint32_t port = 0;      // kWelcome, kYield: the endpoint's (next) port; 0 for a Unix socket
  uint32_t reserved = 0;
  std::array<char, 224> text{};  // kWelcome: the endpoint's address; kRefused: why; zero-terminated

  void SetText(std::string_view value);
  // Returns the text with unprintable characters replaced by "?".
  std::string Text() const;
};
static_assert(sizeof(HandoverMessage) == kMessageBytes);

HandoverMessage MakeMessage(MessageType type);

// Returns the socket's name without its leading zero byte: "nccl-pulse-1000-9410". Names differ
// between users.
std::string HandoverName(uid_t user, const ListenAddress& address);

// Opens the socket under this name. Returns 0 or an errno: EADDRINUSE if the name is taken.
int ListenOn(const std::string& name, SharedDescriptor* listener);
// Connects to the socket of this name. Returns 0 or an errno: ECONNREFUSED if the name is free,
// EPERM if its holder is not `owner`, EAGAIN if too many connections are waiting.
int ConnectTo(const std::string& name, uid_t owner, SharedDescriptor* connection);
// True if the name is free. Does not disturb its holder.
bool IsFree(const std::string& name);

// The kernel's list of all Unix sockets of this network namespace, and the most bytes read of it.
inline constexpr char kUnixSockets[] = "/proc/net/unix";
inline constexpr std::size_t kMostUnixSockets = 64 << 20;

// A name in use in this network namespace, and the user and port that the name claims.
struct NameInUse {
  std::string name;
  uid_t user;
  uint16_t port;
};
std::vector<NameInUse> NamesInUse();

struct Credentials {
  pid_t pid = 0;  // as seen here; 0: its PID namespace is not visible here
  uid_t user = static_cast<uid_t>(-1);
};
// Reads the peer's credentials. Returns false if the kernel refuses them, or if the peer has this
// process' user number, which stands for all unmapped users (IsOneUser).
bool PeerCredentials(int connection, Credentials* credentials);
// In a user namespace the kernel gives all unmapped users one number. Returns false for that
// number. `overflow_uid` and `uid_map`: the contents of /proc/sys/kernel/overflowuid and
// /proc/self/uid_map, "" if unknown.
bool IsOneUser(uid_t user, std::string_view overflow_uid, std::string_view uid_map);
// Returns the inode of a process' PID namespace; 0: the initial one. `pid`: as seen here. Empty if
// the process has ended or belongs to another user.
std::optional<uint32_t> PidNamespaceOf(pid_t pid);
// Returns the inode of this process' PID namespace; 0: the initial one, or unknown.
uint32_t OwnPidNamespace();

// Sends a message. `memory`: a descriptor to pass, or -1. Returns false if the other side is gone
// or does not read.
bool Send(int connection, const HandoverMessage& message, int memory = -1);

enum class Received {
  kMessage,
  kNothing,  // yet
  kClosed,   // or failed
  kBad,      // not a message of this protocol; `error` says why
};
// Receives a message. `memory` gets the descriptor that was passed, if any.
Received Receive(int connection, HandoverMessage* message, SharedDescriptor* memory,
                 std::string* error);

}  // namespace nccl_pulse

#endif  // EXPORTER_NODE_HANDOVER_H_
