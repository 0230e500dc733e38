#include "exporter/control/control_socket.h"

#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "exporter/base/time.h"

namespace nccl_pulse {
namespace {

constexpr int kAcceptsPerRound = 64;

// True if the client has closed: its earlier commands must not be executed.
bool HasLeft(int connection) {
  pollfd polled = {connection, POLLRDHUP, 0};
  return poll(&polled, 1, 0) > 0 && (polled.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
}

}  // namespace

std::string ControlNamePrefix(uid_t user) { return absl::StrCat("nccl-pulse-", user, "-control-"); }

std::string OwnerWords(const std::string& job_id) {
  return job_id.empty() ? "a job without ID" : absl::StrCat("job ", job_id);
}

bool ControlSocket::Open(Options options) {
  options_ = std::move(options);
  uint32_t tag = 0;
  if (getrandom(&tag, sizeof(tag), GRND_NONBLOCK) != sizeof(tag)) {
    tag = static_cast<uint32_t>(RealtimeNs());
  }
  name_ =
      absl::StrCat(ControlNamePrefix(geteuid()), getpid(), "-", absl::Hex(tag, absl::kZeroPad8));
  return ListenOn(name_, &listener_) == 0;
}

bool ControlSocket::Round(Time now) {
  for (const LiveSetting setting : options_.values->Expire(now)) {
    Log(LogLevel::kWarning,
        absl::StrCat(LiveSettingName(setting), " is ", options_.values->Value(setting),
                     " again: the time limit of its change has passed"));
  }
  if (!listener_.is_open()) return false;
  Accept(now);
  bool is_asked = false;
  for (Client& client : clients_) {
    if (!client.connection.is_open()) continue;
    is_asked = true;
    if (!Handle(&client, now) || client.since + kClientTimeout <= now) client.connection.Close();
  }
  return is_asked;
}

void ControlSocket::Accept(Time now) {
  for (int i = 0; i < kAcceptsPerRound; ++i) {
    Client* slot = nullptr;
    for (Client& client : clients_) {
      if (!client.connection.is_open()) slot = &client;
    }
    if (slot == nullptr) return;
    {
      const ForkGuard guard;
      const int fd = accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
      if (fd < 0) return;
      slot->connection.Set(fd);
    }
    slot->since = now;
    const bool is_known = options_.credentials(slot->connection.get(), &slot->credentials);
    const uid_t user = slot->credentials.user;
    if (is_known && (user == geteuid() || user == 0)) continue;
    Reply(*slot, MessageType::kRefused, "only its own user and root may change settings");
    slot->connection.Close();
    Count(CommandResult::kForeignUser);
    // Logged once: any user could fill the log.
    if (!std::exchange(named_foreign_, true)) {
      Log(LogLevel::kWarning,
          is_known
              ? absl::StrCat("user ", user, " (pid ", slot->credentials.pid,
                             ") was refused: only its own user and root may change settings")
              : std::string(
                    "an unknown user was refused: only its own user and root may change settings"));
    }
  }
}

bool ControlSocket::Handle(Client* client, Time now) {
  for (int i = 0; i < kMessagesPerRound; ++i) {
    HandoverMessage message;
    SharedDescriptor memory;
    std::string error;
    const Received received = Receive(client->connection.get(), &message, &memory, &error);
    memory.Close();
    switch (received) {
      case Received::kNothing:
        return true;
      case Received::kClosed:
        return false;
      case Received::kBad:
        Count(CommandResult::kRefused);
        Reply(*client, MessageType::kRefused, error);
        return false;
      case Received::kMessage:
        break;
    }
    client->since = now;
    if (!Answer(*client, message, now)) return false;
  }
  return true;
}

bool ControlSocket::Answer(const Client& client, const HandoverMessage& message, Time now) {
  if (message.type == MessageType::kSet) return Change(client, message, now);
  if (message.type == MessageType::kListSettings) {
    for (const std::string& line : options_.values->Lines()) {
      if (!Reply(client, MessageType::kSetting, line)) return false;
    }
    return Reply(client, MessageType::kDone, options_.owner);
  }
  Count(CommandResult::kRefused);
  Reply(client, MessageType::kRefused, "an unknown command: another version of NCCL Pulse?");
  return false;
}

bool ControlSocket::Change(const Client& client, const HandoverMessage& message, Time now) {
  const std::string text = message.Text();
  if (HasLeft(client.connection.get())) {
    Count(CommandResult::kAbandoned);
    Log(LogLevel::kInfo, absl::StrCat("not set: ", text, ": the client has disconnected"));
    return false;
  }
  LiveCommand command;
  std::string problem;
  LiveValues& values = *options_.values;
  if (ParseLiveCommand(text, &command, &problem)) {
    if (!values.Has(command.setting)) {
      Count(CommandResult::kRefused);
      return Reply(client, MessageType::kNotHere, "this process has no such setting");
    }
    const std::string before = values.Value(command.setting);
    const std::string what = absl::StrCat(
        "set: ", text, message.delay_ms > 0 ? absl::StrCat(" for ", message.delay_ms, " ms") : "",
        " (was ", before, "), by user ", client.credentials.user, ", pid ", client.credentials.pid);
    // Logs before the log is switched off.
    const bool is_said_before = command.setting == LiveSetting::kLogLevel && before != "off";
    if (is_said_before) Log(LogLevel::kWarning, what);
    problem = values.Set(command, std::chrono::milliseconds(message.delay_ms),
                         client.credentials.user, now, RealtimeNs());
    if (problem.empty()) {
      Count(CommandResult::kDone);
      if (!is_said_before) Log(LogLevel::kWarning, what);
      return Reply(client, MessageType::kDone,
                   absl::StrCat(LiveSettingName(command.setting), "=",
                                values.Value(command.setting), " (was ", before, ")"));
    }
  }
  Count(CommandResult::kRefused);
  Log(LogLevel::kInfo,
      absl::StrCat("not set: ", text, ", by user ", client.credentials.user, ": ", problem));
  return Reply(client, MessageType::kRefused, problem);
}

bool ControlSocket::Reply(const Client& client, MessageType type, const std::string& text) {
  HandoverMessage message = MakeMessage(type);
  message.SetText(text);
  return Send(client.connection.get(), message);
}

void ControlSocket::Count(CommandResult result) {
  if (options_.count) options_.count(result);
}

void ControlSocket::Log(LogLevel level, const std::string& message) {
  if (options_.log) options_.log(level, message);
}

void ControlSocket::Close() {
  listener_.Close();
  for (Client& client : clients_) client.connection.Close();
}

}  // namespace nccl_pulse
