#include "exporter/node/takeover.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "exporter/base/time.h"
#include "exporter/node/handover.h"
#include "exporter/node/node_times.h"
#include "exporter/node/peers/peer_options.h"
#include "exporter/node/server_link.h"
#include "metrics/shared_descriptor.h"

namespace nccl_pulse {
namespace {

constexpr std::chrono::milliseconds kYieldAnswerTime{1000};

}  // namespace

bool Takeover::Ask(const std::string& name, uid_t owner, std::string* refusal,
                   std::string* silent) {
  SharedDescriptor connection;
  if (ConnectTo(name, owner, &connection) != 0) return false;
  HandoverMessage wish = MakeMessage(MessageType::kYield);
  wish.port = wanted_.port;
  Send(connection.get(), wish);
  WaitFor(connection.get(), MonotonicNow() + kYieldAnswerTime);
  HandoverMessage message;
  SharedDescriptor memory;
  std::string error;
  const Received received = Receive(connection.get(), &message, &memory, &error);
  memory.Close();
  if (silent != nullptr) {
    *silent = absl::StrCat("the process that serves there does not answer, ",
                           WhyNoAnswer(connection.get()));
  }
  connection.Close();
  if (received != Received::kMessage) return false;
  if (message.type == MessageType::kRefused) *refusal = message.Text();
  if (message.type != MessageType::kYielded) return false;
  // The server's members and the server itself will join.
  expected_members_ += static_cast<int>(std::min<uint32_t>(message.members, kMaxMembers)) + 1;
  return true;
}

bool Takeover::AskOthers(bool same_port_only, std::string* refusal) {
  if (!wanted_.path.empty()) return false;
  bool asked = false;
  const std::string own = HandoverName(geteuid(), wanted_);
  for (const NameInUse& other : NamesInUse()) {
    if (other.name == own || (geteuid() != 0 && other.user != geteuid())) continue;
    const int last_port = same_port_only ? wanted_.port : wanted_.port + kFurtherPorts;
    if (other.port < wanted_.port || other.port > last_port) continue;
    Ask(other.name, other.user, refusal);
    asked = true;
  }
  return asked;
}

}  // namespace nccl_pulse
