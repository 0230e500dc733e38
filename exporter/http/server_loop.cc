#include "exporter/http/server_loop.h"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <utility>

#include "exporter/http/limits.h"
#include "exporter/node/monotonic_clock.h"

namespace nccl_pulse {
namespace {

using std::chrono::duration_cast;
using std::chrono::milliseconds;

// After a failure that would come again at once.
constexpr milliseconds kPause{100};

void Pause() { poll(nullptr, 0, static_cast<int>(kPause.count())); }

// For poll(): milliseconds, or -1 for ever.
int TimeoutUntil(ServerLoop::Time end, ServerLoop::Time now) {
  if (end == ServerLoop::Time::max()) return -1;
  // One more, because the division rounds down: waking too early would waste a round.
  const auto wait = duration_cast<milliseconds>(end - now) + milliseconds(1);
  return static_cast<int>(std::max(wait, milliseconds(0)).count());
}

}  // namespace

ServerLoop::ServerLoop(ServerOptions options)
    : options_(std::move(options)),
      node_({options_.listen_address, options_.memory, options_.peers, options_.service_directory,
             options_.guard != nullptr && options_.guard->is_https()},
            options_.log),
      pages_(&options_, &node_,
             [this](bool in_any_case) { return clients_.CutOffSlowest(in_any_case); }),
      responder_(&options_, &pages_, &node_),
      clients_(options_.guard.get(), &responder_, options_.log),
      clients_budget_(options_.cpu_share * kClientsShare, kCpuBurst, MonotonicNow()),
      handover_budget_(options_.cpu_share * kHandoverShare, kHandoverBurst, MonotonicNow()),
      failure_(options_.log) {}

bool ServerLoop::Wait(const Wake& wake) {
  // Only open ones: poll() refuses more entries than the process may have descriptors.
  polled_.clear();
  places_ = Places();
  const Time start = MonotonicNow();
  Time next = node_.next();
  const bool may_serve = clients_budget_.Allows(start);
  if (!may_serve) next = std::min(next, clients_budget_.allows_from());
  const bool may_take = handover_budget_.Allows(start);
  if (!may_take) next = std::min(next, handover_budget_.allows_from());
  places_.has_clients = may_serve;
  if (may_serve) clients_.AppendPolled(&polled_, &next);
  places_.wake = polled_.size();
  polled_.push_back({wake.fd(), POLLIN, 0});
  if (options_.guard != nullptr) {
    polled_.push_back({may_serve ? options_.guard->verdicts().fd() : -1, POLLIN, 0});
  }
  const Time accept_from = std::max(clients_.accept_from(), node_.accept_from());
  places_.was_serving = node_.is_serving();
  if (places_.was_serving && may_serve) {
    if (accept_from <= start) {
      places_.listener = polled_.size();
      polled_.push_back({node_.listener(), POLLIN, 0});
    } else {
      next = std::min(next, accept_from);
    }
  }
  places_.node = polled_.size();
  node_.AppendPolled(&polled_, may_take);
  if (poll(polled_.data(), polled_.size(), TimeoutUntil(next, start)) < 0) {
    // The limit of descriptors was lowered below what is open, or the kernel has no memory.
    if (errno != EINTR) Pause();
    return false;
  }
  if (polled_[places_.wake].revents != 0) wake.Clear();
  return true;
}

void ServerLoop::HandleRound() {
  const Time now = MonotonicNow();
  if (options_.guard != nullptr && polled_[places_.wake + 1].revents != 0) {
    clients_.AnswerParked(now);
  }
  Spend(&clients_budget_, now);
  node_.Handle(polled_.data() + places_.node, now);
  Spend(&handover_budget_, now);
  if (places_.was_serving && !node_.is_serving()) clients_.Leave();
  if (places_.has_clients) clients_.Handle(polled_.data(), now);
  if (places_.listener != 0 && node_.is_serving() && polled_[places_.listener].revents != 0) {
    clients_.Accept(node_.listener(), now);
  }
  Spend(&clients_budget_, now);
}

// What the thread has done since the last time, except making pages.
void ServerLoop::Spend(CpuBudget* budget, Time now) {
  const std::chrono::nanoseconds used = ThreadCpuTime() - pages_.cpu_spent();
  budget->Spend(used - cpu_accounted_, now);
  cpu_accounted_ = used;
}

void ServerLoop::StartOver(std::string_view what) noexcept {
  failure_.Give("HTTP endpoint: all connections closed after: ", what);
  clients_.CloseAll();
  Pause();
}

void ServerLoop::Close() {
  clients_.CloseAll();
  node_.Close();
}

void ServerLoop::CloseDescriptors() {
  node_.CloseDescriptors();
  clients_.CloseDescriptors();
}

}  // namespace nccl_pulse
