// Receives commands to a running process over an abstract Unix socket. It is separate from the
// hand-over socket, but has the same messages (handover.h) and checks.
//
//   pulse                                          process
//      | ---- kSet: NAME=VALUE, for how long ---------> |
//      | <--- kDone, kNotHere, or kRefused: why ------- |
//      | ---- kListSettings --------------------------> |
//      | <--- kSetting: one line, several times ------- |
//      | <--- kDone, with the owner of the process ---- |
//
// The name is "nccl-pulse-UID-control-PID-TAG". TAG is a random number, because pids are unique
// only in a PID namespace, and so that nobody can take the name first. Only the process' own user
// and root may send commands; the kernel identifies them (SO_PEERCRED). Over HTTP no setting can be
// changed.
//
// A stopped process does not answer, and its client leaves. When the process continues, it discards
// commands of clients that have left.
//
// Bounded: kMaxClients connections, each until kClientTimeout without a message, and
// kMessagesPerRound messages per round and connection. Further clients wait in the kernel's
// backlog. Round never waits.
//
// Thread: one, which calls Round repeatedly (in a job the background thread, never a callback).
// Cost of a round without a client: one system call.
#ifndef EXPORTER_CONTROL_CONTROL_SOCKET_H_
#define EXPORTER_CONTROL_CONTROL_SOCKET_H_

#include <sys/types.h>

#include <array>
#include <chrono>
#include <functional>
#include <string>

#include "exporter/base/log.h"
#include "exporter/control/live_values.h"
#include "exporter/node/handover.h"
#include "metrics/kinds.h"
#include "metrics/shared_descriptor.h"

namespace nccl_pulse {

// The owner of a process in words, for display and for comparison: kAgentOwner for an agent, else
// the job, "job 4711".
inline constexpr char kAgentOwner[] = "agent";
std::string OwnerWords(const std::string& job_id);

// Returns "nccl-pulse-1000-control-", without the leading zero byte.
std::string ControlNamePrefix(uid_t user);

class ControlSocket {
 public:
  using Time = std::chrono::steady_clock::time_point;
  static constexpr int kMaxClients = 8;
  static constexpr int kMessagesPerRound = 64;
  static constexpr std::chrono::milliseconds kClientTimeout{5000};

  struct Options {
    LiveValues* values = nullptr;        // must outlive this object
    std::string owner = OwnerWords("");  // OwnerWords or kAgentOwner
    // kWarning: changes, and the first command of a foreign user. kInfo: refusals. May be empty.
    LogFunction log;
    std::function<void(CommandResult result)> count;  // may be empty
    // Reads the peer's credentials. Replaced in tests.
    bool (*credentials)(int connection, Credentials* credentials) = PeerCredentials;
  };

  // Returns false if the system refuses a socket; then no commands are received.
  bool Open(Options options);
  // Answers clients, and reverts settings whose time is over. Returns true while a client is
  // connected.
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
  // Handles the client's messages. Returns false if the connection must be closed.
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
  bool named_foreign_ = false;  // a command of a foreign user was logged
};

}  // namespace nccl_pulse

#endif  // EXPORTER_CONTROL_CONTROL_SOCKET_H_
