#include "exporter/control/control_client.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "exporter/base/error_text.h"
#include "exporter/base/proc.h"
#include "exporter/base/time.h"
#include "exporter/control/control_socket.h"
#include "exporter/node/server_link.h"

namespace nccl_pulse {
namespace {

// Limits of lines, and of processes per user: far more than in practice.
constexpr std::size_t kMostLines = 64;
constexpr int kMostOfAUser = 256;

constexpr char kNotHere[] =
    "not an NCCL Pulse process in this network namespace; `pulse settings` lists them";

struct Socket {
  std::string name;
  uid_t user = 0;
  pid_t pid = 0;  // as the process sees itself
};

// Returns the control sockets of this network namespace, each once: connections are listed under
// the same name.
std::vector<Socket> FindSockets() {
  constexpr std::string_view kPrefix = "@nccl-pulse-";
  std::vector<Socket> sockets;
  std::set<std::string> seen;
  const std::string listed = ReadFile(kUnixSockets, kMostUnixSockets);
  for (const std::string_view line : absl::StrSplit(listed, '\n')) {
    const std::size_t at = line.find(kPrefix);
    if (at == line.npos) continue;
    Socket socket;
    socket.name = std::string(line.substr(at + 1));
    const std::vector<std::string> parts = absl::StrSplit(line.substr(at + kPrefix.size()), '-');
    if (parts.size() != 4 || parts[1] != "control" || !absl::SimpleAtoi(parts[0], &socket.user) ||
        !absl::SimpleAtoi(parts[2], &socket.pid) || !seen.insert(socket.name).second) {
      continue;
    }
    sockets.push_back(std::move(socket));
  }
  return sockets;
}

// A process with commands in progress.
struct Asked {
  ControlAnswer answer;
  SharedDescriptor connection;
  std::size_t sent = 0;
  bool is_over = false;

  ~Asked() { connection.Close(); }
};

void End(Asked* asked, const std::string& problem) {
  asked->answer.problem = problem;
  asked->is_over = true;
}

// Sends as many commands as the socket takes now.
void SendCommands(Asked* asked, const std::vector<HandoverMessage>& commands) {
  while (asked->sent < commands.size() && Send(asked->connection.get(), commands[asked->sent])) {
    ++asked->sent;
  }
}

void Listen(Asked* asked, std::size_t commands) {
  while (!asked->is_over) {
    HandoverMessage message;
    SharedDescriptor memory;
    std::string error;
    const Received received = Receive(asked->connection.get(), &message, &memory, &error);
    memory.Close();
    if (received == Received::kNothing) return;
    if (received == Received::kClosed) return End(asked, "it ended before it had answered");
    if (received == Received::kBad) return End(asked, error);
    std::vector<ControlReply>& replies = asked->answer.replies;
    if (message.type == MessageType::kSetting) {
      // The line belongs to a reply that is still incomplete: its type is not set.
      if (replies.empty() || replies.back().type != MessageType{}) replies.emplace_back();
      if (replies.back().lines.size() == kMostLines) {
        return End(asked, absl::StrCat("it answers with more than ", kMostLines, " lines"));
      }
      replies.back().lines.push_back(message.Text());
      continue;
    }
    const bool is_reply = message.type == MessageType::kDone ||
                          message.type == MessageType::kNotHere ||
                          message.type == MessageType::kRefused;
    if (!is_reply)
      return End(asked, "it answers with an unknown message: another version of NCCL Pulse?");
    if (replies.empty() || replies.back().type != MessageType{}) replies.emplace_back();
    replies.back().type = message.type;
    replies.back().text = message.Text();
    asked->is_over = replies.size() == commands;
  }
}

// The selected processes that were found.
struct Found {
  std::set<pid_t> pids;
  std::set<std::size_t> processes;  // indices
};

bool IsForAll(const ControlQuestion& question) {
  return question.pids.empty() && question.processes.empty();
}

// True if the process with pid `own`, as it sees itself, is selected. `seen`: its pid here; empty
// if it cannot be reached, so that its namespace is unknown.
bool IsWanted(pid_t own, std::optional<pid_t> seen, const ControlQuestion& question, Found* found) {
  bool is_wanted = IsForAll(question);
  const pid_t pid = seen.value_or(own);
  if (std::find(question.pids.begin(), question.pids.end(), pid) != question.pids.end()) {
    found->pids.insert(pid);
    is_wanted = true;
  }
  for (std::size_t i = 0; i < question.processes.size(); ++i) {
    const OwnPid& process = question.processes[i];
    if (process.pid != own) continue;
    if (seen && PidNamespaceOf(*seen) != process.pid_namespace) continue;
    found->processes.insert(i);
    is_wanted = true;
  }
  return is_wanted;
}

// Connects to a process. Returns null if it is not selected. All selected processes get an answer,
// even if they cannot be reached.
std::unique_ptr<Asked> Connect(const Socket& socket, const ControlQuestion& question,
                               Found* found) {
  const uid_t self = geteuid();
  const bool may_ask = self == 0 || socket.user == self;
  // Another user's pid is known only from the socket's name.
  if (!may_ask && (IsForAll(question) || !IsWanted(socket.pid, std::nullopt, question, found))) {
    return nullptr;
  }
  auto asked = std::make_unique<Asked>();
  asked->answer.pid = socket.pid;
  asked->answer.user = socket.user;
  asked->answer.name = socket.name;
  if (!may_ask) {
    End(asked.get(), absl::StrCat("it belongs to user ", socket.user,
                                  ": only that user and root may change it"));
    return asked;
  }
  std::optional<pid_t> seen;
  const int error = ConnectTo(socket.name, socket.user, &asked->connection);
  // The process has just ended, or another user holds the socket's name: send nothing there.
  if (error == ECONNREFUSED || error == EPERM) return nullptr;
  if (error == 0) {
    Credentials owner;
    const bool is_seen = question.credentials(asked->connection.get(), &owner) && owner.pid > 0;
    // Not visible in this PID namespace: the pid in the name may be another process' here.
    if (!is_seen && !IsForAll(question)) return nullptr;
    seen = is_seen ? owner.pid : socket.pid;
    asked->answer.pid = *seen;
  }
  if (!IsWanted(socket.pid, seen, question, found)) return nullptr;
  if (error != 0) {
    End(asked.get(), error == EAGAIN ? "it does not answer: too many clients are waiting"
                                     : absl::StrCat("it cannot be reached: ", ErrorText(error)));
  }
  return asked;
}

}  // namespace

HandoverMessage MakeSet(std::string_view name_and_value, std::chrono::milliseconds lasting) {
  HandoverMessage message = MakeMessage(MessageType::kSet);
  message.SetText(name_and_value);
  message.delay_ms = static_cast<uint32_t>(std::min<int64_t>(lasting.count(), UINT32_MAX));
  return message;
}

std::vector<ControlAnswer> AskProcesses(const ControlQuestion& question) {
  const auto end = MonotonicNow() + question.patience;
  std::vector<std::unique_ptr<Asked>> all;
  Found found;
  std::map<uid_t, int> asked_of;
  const std::vector<std::string>& names = question.names;
  for (const Socket& socket : FindSockets()) {
    if (!names.empty() && std::find(names.begin(), names.end(), socket.name) == names.end()) {
      continue;
    }
    std::unique_ptr<Asked> asked = Connect(socket, question, &found);
    if (asked == nullptr) continue;
    if (!asked->is_over && ++asked_of[socket.user] > kMostOfAUser) {
      // Reported once per user, since each process would take a descriptor.
      if (asked_of[socket.user] > kMostOfAUser + 1) continue;
      asked->connection.Close();
      End(asked.get(), absl::StrCat("user ", socket.user, " has more than ", kMostOfAUser,
                                    " processes: the others are not asked"));
    }
    if (!asked->is_over) SendCommands(asked.get(), question.commands);
    all.push_back(std::move(asked));
  }
  std::vector<pollfd> polled;
  while (true) {
    polled.clear();
    for (const std::unique_ptr<Asked>& each : all) {
      if (each->is_over) continue;
      const bool sends = each->sent < question.commands.size();
      polled.push_back(
          {each->connection.get(), static_cast<int16_t>(sends ? POLLIN | POLLOUT : POLLIN), 0});
    }
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(end - MonotonicNow()).count();
    if (polled.empty() || left <= 0) break;
    if (poll(polled.data(), polled.size(), static_cast<int>(left + 1)) <= 0) continue;
    for (const std::unique_ptr<Asked>& each : all) {
      if (each->is_over) continue;
      SendCommands(each.get(), question.commands);
      Listen(each.get(), question.commands.size());
    }
  }
  std::vector<ControlAnswer> answers;
  for (const std::unique_ptr<Asked>& each : all) {
    if (!each->is_over) {
      End(each.get(), absl::StrCat("it did not answer within ", question.patience.count(),
                                   " ms: ", WhyNoAnswer(each->connection.get())));
    }
    std::vector<ControlReply>& replies = each->answer.replies;
    if (!replies.empty() && replies.back().type == MessageType{}) replies.pop_back();
    answers.push_back(std::move(each->answer));
  }
  const auto add_missing = [&answers](pid_t pid, const char* problem) {
    ControlAnswer answer;
    answer.pid = pid;
    answer.problem = problem;
    answers.push_back(std::move(answer));
  };
  for (const pid_t pid : question.pids) {
    if (found.pids.insert(pid).second) {
      add_missing(pid, kNotHere);
    }
  }
  for (std::size_t i = 0; i < question.processes.size(); ++i) {
    if (found.processes.count(i) != 0) continue;
    const OwnPid& process = question.processes[i];
    add_missing(process.pid,
                process.pid_namespace == OwnPidNamespace()
                    ? kNotHere
                    : "it runs in another container: run this there, or as root on the host");
  }
  std::stable_sort(answers.begin(), answers.end(),
                   [](const ControlAnswer& a, const ControlAnswer& b) { return a.pid < b.pid; });
  return answers;
}

}  // namespace nccl_pulse
