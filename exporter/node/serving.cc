#include "exporter/node/serving.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "exporter/base/files.h"
#include "exporter/base/patient_thread.h"
#include "exporter/base/time.h"
#include "exporter/node/handover.h"
#include "exporter/node/node_times.h"

namespace nccl_pulse {

Serving::Serving(const PeerOptions& peers, const std::string& service_directory, LogFunction log)
    : log_(std::move(log)),
      peers_(peers, log_),
      announcer_(service_directory),
      is_agent_(peers.agent) {}

void Serving::Begin(const std::string& address, uint16_t port, bool https,
                    const std::string& socket_path, const SharedDescriptor* memory,
                    int expected_members, Time now) {
  socket_path_ = socket_path;
  expected_members_ = expected_members;
  accept_from_ = expected_members_ > 0 ? now + kGatherTime : now;
  peers_.Open(address, port, memory);
  const std::string error = announcer_.Announce(address, port, https);
  if (!error.empty() && log_) log_(LogLevel::kWarning, error);
}

void Serving::AppendPolled(std::vector<pollfd>* polled, bool accepting) {
  polls_name_ = accepting && name_listener_.get() >= 0 && peers_.accept_from() <= MonotonicNow();
  if (polls_name_) polled->push_back({name_listener_.get(), POLLIN, 0});
  peers_.AppendPolled(polled);
}

bool Serving::Handle(const pollfd* polled, Time now) {
  peers_.Handle(polled + (polls_name_ ? 1 : 0), now);
  if (polls_name_ && polled[0].revents != 0) peers_.Accept(name_listener_.get(), now);
  const bool asked = peers_.EndRound();
  if (accept_from_ > now && peers_.members() >= expected_members_) accept_from_ = now;
  return asked;
}

int Serving::Yield(Time now) {
  // Members still on their way here will come to the next server.
  const bool gathering = accept_from_ > now;
  const int members = gathering ? std::max(peers_.members(), expected_members_) : peers_.members();
  announcer_.Withdraw();
  listener_.Close();
  name_listener_.Close();
  peers_.Yield(kYieldTime, members);
  return members;
}

void Serving::CleanUp(Time now) {
  peers_.EndDead(now);
  if (now < clean_at_) return;
  clean_at_ = now + kCleanPeriod;
  // Jobs leave most files, but write none while an agent serves: only the agent can remove them.
  const std::string error = announcer_.KeepUp(is_agent_);
  if (!error.empty() && log_) log_(LogLevel::kWarning, error);
}

void Serving::SayGoodbye() {
  announcer_.Withdraw();
  if (!socket_path_.empty()) {
    RunWithin(kFilePatience, [path = socket_path_] { unlink(path.c_str()); });
  }
  socket_path_.clear();
}

void Serving::Close() {
  listener_.Close();
  name_listener_.Close();
  peers_.CloseAll();
}

}  // namespace nccl_pulse
