// Sends commands to this node's processes over their control sockets (control_socket.h): to all at
// once, and for a bounded time. Reports why a process does not answer. Processes may be hostile, so
// messages per process and processes per user are limited.
//
// Asks only processes of the caller's own user; root asks all. Skips a socket whose name contains
// another user than the one that holds it.
//
// Thread: the caller's; blocks for `patience` and some milliseconds at most. Cost: a descriptor
// per process while it runs.
//
// For example, to time everything for ten seconds:
//   ControlQuestion question;
//   question.commands = {MakeSet("TIMED_LAUNCHES_PER_SECOND=one-in-1", seconds(10)),
//                        MakeSet("NETWORK_WINDOW=100", seconds(10))};
//   AskProcesses(question);
// Each process reverts the settings automatically, even if the caller is killed.
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

// Makes a command that changes a setting for the time `lasting`. 0: until the process ends or the
// setting is changed again.
HandoverMessage MakeSet(std::string_view name_and_value, std::chrono::milliseconds lasting = {});

// A pid as the process itself sees it, and its PID namespace; 0: the system's own.
struct OwnPid {
  pid_t pid = 0;
  uint32_t pid_namespace = 0;
};

struct ControlQuestion {
  std::vector<HandoverMessage> commands;  // MakeSet, or MakeMessage(kListSettings)
  // The processes to ask; if `names`, `pids` and `processes` are empty: all processes.
  std::vector<std::string> names;  // of their sockets (ControlAnswer::name)
  std::vector<pid_t> pids;         // as seen here
  // Pids as the processes see them. Cannot reach processes that are not visible in this PID
  // namespace.
  std::vector<OwnPid> processes;
  std::chrono::milliseconds patience{3000};
  // Reads the peer's credentials. Replaced in tests.
  bool (*credentials)(int connection, Credentials* credentials) = PeerCredentials;
};

struct ControlReply {
  MessageType type{};  // kDone; kNotHere: no such setting in this process; kRefused
  // Result, or reason of the refusal. For kListSettings: "agent", or the job to which the process
  // belongs, in words.
  std::string text;
  std::vector<std::string> lines;  // for kListSettings: LiveValues::Lines
};

struct ControlAnswer {
  pid_t pid = 0;  // as seen here, or, if not visible here, as the process sees it
  uid_t user = 0;
  std::string name;                   // name of its socket; "": none
  std::vector<ControlReply> replies;  // in the order of the commands
  std::string problem;                // "" if all commands were answered
};

// Sends the commands. Returns answers in the order of pids. A selected process without a socket
// here gets an answer with a problem.
std::vector<ControlAnswer> AskProcesses(const ControlQuestion& question);

}  // namespace nccl_pulse

#endif  // EXPORTER_CONTROL_CONTROL_CLIENT_H_
