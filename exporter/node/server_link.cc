#include "exporter/node/server_link.h"

#include <algorithm>
#include <cerrno>

#include "absl/strings/str_cat.h"
#include "exporter/node/node_times.h"

namespace nccl_pulse {
namespace {

// After this many unanswered connections in a row, the other end is not NCCL Pulse.
constexpr int kMaxUnanswered = 5;

}  // namespace

std::string WhyNoAnswer(int connection) {
  Credentials server;
  if (!PeerCredentials(connection, &server)) server.pid = 0;
  const RunState state = RunStateOf({server.pid, 0});
  if (state == RunState::kUnknown) return "it may be stopped, or busy";
  const std::string words = RunStateWords(state);
  return absl::StrCat("process ", server.pid, " ",
                      words.empty()
                          ? "is busy: its CPU budget for connections is spent, or its job "
                            "keeps it from running"
                          : words);
}

Attempt ServerLink::Join(const std::string& name, uid_t owner, const SharedDescriptor& memory,
                         Time now) {
  if (std::find(refused_by_.begin(), refused_by_.end(), name) != refused_by_.end()) {
    return Attempt::kTaken;
  }
  const int error = ConnectTo(name, owner, &server_);
  if (error == ECONNREFUSED) return Attempt::kNobody;
  if (error == EAGAIN) return Attempt::kBusy;  // the backlog is full
  if (error != 0) return Attempt::kTaken;
  Credentials server;
  PeerCredentials(server_.get(), &server);
  process_ = ProcessIdOf(server.pid);
  name_ = name;
  if (IsDead(process_)) {
    AvoidDead();
    server_.Close();
    return Attempt::kTaken;
  }
  // On EPIPE the server has closed the connection; Receive reads its reason.
  if (!Send(server_.get(), MakeMessage(MessageType::kHello), memory.get()) && errno != EPIPE &&
      errno != ECONNRESET) {
    server_.Close();
    return Attempt::kBusy;
  }
  user_ = owner;
  check_at_ = now + kCheckPeriod;
  silent_from_ = now + kSilencePatience;
  return Attempt::kJoined;
}

Received ServerLink::Receive(HandoverMessage* message) {
  SharedDescriptor memory;  // servers send none
  std::string error;
  const Received received = nccl_pulse::Receive(server_.get(), message, &memory, &error);
  memory.Close();
  if (received != Received::kBad) return received;
  *message = MakeMessage(MessageType::kRefused);
  message->SetText(error);
  return Received::kMessage;
}

void ServerLink::CountUnanswered() {
  if (++unanswered_ < kMaxUnanswered) return;
  Avoid();
  unanswered_ = 0;
}

void ServerLink::AvoidDead() {
  Avoid();
  dead_name_ = name_;
}

bool ServerLink::HasDeadLeft() {
  if (dead_name_.empty() || !IsFree(dead_name_)) return false;
  dead_name_.clear();
  return true;
}

void ServerLink::AvoidNobody() {
  refused_by_.clear();
  unanswered_ = 0;
}

bool ServerLink::MustCheck(Time now) {
  if (check_at_ > now || !server_.is_open()) return false;
  check_at_ = now + kCheckPeriod;
  return true;
}

bool ServerLink::IsServerGone() const { return IsFree(name_); }

std::string ServerLink::WhyDead() const {
  const RunState state = RunStateOf(process_);
  return IsDead(state) ? absl::StrCat("process ", process_.pid, " ", RunStateWords(state)) : "";
}

std::string ServerLink::WhySilent(Time now) {
  if (warned_of_silence_ || now < silent_from_) return "";
  warned_of_silence_ = true;
  return WhyNoAnswer(server_.get());
}

void ServerLink::SayGoodbye() { Send(server_.get(), MakeMessage(MessageType::kGoodbye)); }

void ServerLink::Close() {
  server_.Close();
  check_at_ = Time::max();
}

}  // namespace nccl_pulse
