// Asks the processes of this node, over their control sockets (control_socket.h): all at once, and
// for a bounded time. Who does not answer is named with the reason. A process may be hostile: of
// each a bounded number of messages is read, and of each user a bounded number of processes asked.
//
// Only processes of the caller's own user are asked; root asks everybody's. A name that somebody
// else holds than it says is passed over.
//
// Thread: the caller's; blocks for `patience` at most, and some milliseconds. Cost: two descriptors
// for each process while it runs.
//
// To watch everything for ten seconds, as another command may want to:
//   ControlQuestion question;
//   question.commands = {MakeSet("TIMED_LAUNCHES_PER_SECOND=one-in-1", seconds(10)),
//                        MakeSet("NETWORK_WINDOW=100", seconds(10))};
//   AskProcesses(question);
// Each process goes back by itself, also if the caller is killed.
#ifndef EXPORTER_CONTROL_CONTROL_CLIENT_H_
#define EXPORTER_CONTROL_CONTROL_CLIENT_H_

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "exporter/node/handover.h"

namespace nccl_pulse {

// `lasting` 0: until the process ends or it is set again.
HandoverMessage MakeSet(std::string_view name_and_value, std::chrono::milliseconds lasting = {});

// A pid as the process itself sees it, and in which PID namespace that is; 0: the system's own.
struct OwnPid {
  pid_t pid = 0;
  uint32_t pid_namespace = 0;
};

struct ControlQuestion {
  std::vector<HandoverMessage> commands;  // MakeSet, or MakeMessage(kListSettings)
  // Whom; all empty: all processes. By the names of their sockets (ControlAnswer::name),
  std::vector<std::string> names;
  // by their pids as they are seen here,
  std::vector<pid_t> pids;
  // and as they tell them of themselves. Not reached: those that this PID namespace does not see.
  std::vector<OwnPid> processes;
  std::chrono::milliseconds patience{3000};
  // Who is at the other end; for tests.
  bool (*credentials)(int connection, Credentials* credentials) = PeerCredentials;
};

struct ControlReply {
  MessageType type{};  // kDone, kNotHere, kRefused
  // What was done, or why it was not; of kListSettings: OwnerWords or kAgentOwner, "" of an earlier
  // version.
  std::string text;
  std::vector<std::string> lines;  // of kListSettings: LiveValues::Lines
};

struct ControlAnswer {
  pid_t pid = 0;  // as it is seen here; as the process sees itself, if it is not seen from here
  uid_t user = 0;
  std::string name;                   // of its socket; "": it has none
  std::vector<ControlReply> replies;  // to the commands, in their order
  std::string problem;                // "": all of them were answered
};

// In the order of their pids. Who was asked for and has no socket here has a problem, too.
std::vector<ControlAnswer> AskProcesses(const ControlQuestion& question);

}  // namespace nccl_pulse

#endif  // EXPORTER_CONTROL_CONTROL_CLIENT_H_
