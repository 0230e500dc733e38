// The way in for commands to a running process: an abstract Unix socket of its own, beside the one
// by which it hands its segment over, with the same messages (handover.h) and the same checks.
//
//   pulse                                          process
//      | ---- kSet: NAME=VALUE, for how long ---------> |
//      | <--- kDone, kNotHere, or kRefused: why ------- |
//      | ---- kListSettings --------------------------> |
//      | <--- kSetting: one line, several times ------- |
//      | <--- kDone, with whose process it is ----------|
//
// The name is "nccl-pulse-UID-control-PID-TAG"; TAG is a random number, since pids are unique in a
// PID namespace only and nobody should hold the name first. Commands are taken from the process'
// own user and from root, whom the kernel names (SO_PEERCRED). Nothing of this is in HTTP.
//
// A process that is stopped does not answer. Who asked does not wait, and has left by the time it
// goes on: what is still in the connection then is not done.
//
// Bounded: kMaxClients connections for kClientTimeout each, kMessagesPerRound messages of each in a
// round. Others wait in the kernel's backlog. Nothing here waits.
//
// Thread: one, which calls Round again and again (in a job the background thread, never a
// callback). Cost of a round without a client: one system call.
#ifndef EXPORTER_CONTROL_CONTROL_SOCKET_H_
#define EXPORTER_CONTROL_CONTROL_SOCKET_H_

#include <sys/types.h>

#include <array>
#include <chrono>
#include <functional>
#include <string>

#include "exporter/base/log_level.h"
#include "exporter/control/live_values.h"
#include "exporter/node/handover.h"
#include "metrics/kinds.h"
#include "metrics/shared_descriptor.h"

namespace nccl_pulse {

// To what a process belongs, for people and to be compared: an agent, or a job by its id.
inline constexpr char kAgentOwner[] = "agent";
std::string OwnerWords(const std::string& job_id);

// "nccl-pulse-1000-control-", without the leading zero byte.
std::string ControlNamePrefix(uid_t user);

class ControlSocket {
 public:
  using Time = std::chrono::steady_clock::time_point;
  static constexpr int kMaxClients = 8;
  static constexpr int kMessagesPerRound = 64;
  static constexpr std::chrono::milliseconds kClientTimeout{5000};

  struct Options {
    LiveValues* values = nullptr;        // outlives this
    std::string owner = OwnerWords("");  // OwnerWords or kAgentOwner
    // kWarning: what was changed, and a foreign user, once; kInfo: what was refused. May be empty.
    LogFunction log;
    std::function<void(CommandResult result)> count;  // may be empty
    // Who is at the other end; for tests.
    bool (*credentials)(int connection, Credentials* credentials) = PeerCredentials;
  };

  // False when the system gives no socket; then nobody can ask.
  bool Open(Options options);
  // Answers who asks, and takes back what has lasted long enough. True while somebody is connected.
  bool Round(Time now);
  const std::string& name() const { return name_; }
  void Close();

 private:
  struct Client {
    SharedDescriptor connection;
    Credentials credentials;
    Time since{};
  };
  void Accept(Time now);
  // False when the connection is to be closed.
  bool Handle(Client* client, Time now);
  bool Answer(const Client& client, const HandoverMessage& message, Time now);
  bool Change(const Client& client, const HandoverMessage& message, Time now);
  bool Reply(const Client& client, MessageType type, const std::string& text);
  void Count(CommandResult result);
  void Log(LogLevel level, const std::string& message);

  Options options_;
  std::string name_;
  SharedDescriptor listener_;
  std::array<Client, kMaxClients> clients_;
  bool named_foreign_ = false;
};

}  // namespace nccl_pulse

#endif  // EXPORTER_CONTROL_CONTROL_SOCKET_H_
