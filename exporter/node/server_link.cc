#include "exporter/node/server_link.h"

#include <algorithm>
#include <cerrno>

#include "absl/strings/str_cat.h"
#include "exporter/node/node_times.h"

namespace nccl_pulse {
namespace {

// After this many connections in a row without an answer the other end is not NCCL Pulse.
constexpr int kMaxUnanswered = 5;

}  // namespace

std::string WhyNoAnswer(int connection) {
  Credentials server;
  if (!PeerCredentials(connection, &server)) server.pid = 0;
  switch (StateOf(server.pid)) {
    case ProcessState::kStopped:
      return absl::StrCat("process ", server.pid, " is stopped");
    case ProcessState::kRuns:
      return absl::StrCat("process ", server.pid,
                          " is busy: so many connect that its processor time for that is spent, "
                          "or its job keeps it from running");
    case ProcessState::kUnknown:
      break;
  }
  return "it may be stopped, or busy";
}

Attempt ServerLink::Join(const std::string& name, uid_t owner, int memory, Time now) {
  if (std::find(refused_by_.begin(), refused_by_.end(), name) != refused_by_.end()) {
    return Attempt::kTaken;
  }
  const int error = ConnectTo(name, owner, &server_);
  if (error == ECONNREFUSED) return Attempt::kNobody;
  if (error == EAGAIN) return Attempt::kBusy;  // too many are waiting
  if (error != 0) return Attempt::kTaken;
  // On EPIPE the server has closed and has said why: Receive reads that.
  if (!Send(server_.get(), MakeMessage(MessageType::kHello), memory) && errno != EPIPE &&
      errno != ECONNRESET) {
    server_.Close();
    return Attempt::kBusy;
  }
  name_ = name;
  user_ = owner;
  check_at_ = now + kNameCheckPeriod;
  return Attempt::kJoined;
}

Received ServerLink::Receive(HandoverMessage* message) {
  SharedDescriptor memory;  // a server sends none
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

void ServerLink::AvoidNobody() {
  refused_by_.clear();
  unanswered_ = 0;
}

bool ServerLink::MustCheck(Time now) {
  if (check_at_ > now || server_.get() < 0) return false;
  check_at_ = now + kNameCheckPeriod;
  return true;
}

bool ServerLink::IsServerGone() const { return IsFree(name_); }

std::string ServerLink::WhySilent() {
  if (warned_of_silence_) return "";
  warned_of_silence_ = true;
  return WhyNoAnswer(server_.get());
}

void ServerLink::SayGoodbye() { Send(server_.get(), MakeMessage(MessageType::kGoodbye)); }

void ServerLink::Close() {
  server_.Close();
  check_at_ = Time::max();
}

}  // namespace nccl_pulse
