#include "exporter/http/server_loop.h"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <utility>

#include "exporter/base/time.h"
#include "exporter/http/limits.h"

namespace nccl_pulse {
namespace {

using std::chrono::duration_cast;
using std::chrono::milliseconds;

// Pause after a failure that would repeat at once.
constexpr milliseconds kPause{100};

// Returns the timeout for poll(2): milliseconds, or -1 for none.
int TimeoutUntil(ServerLoop::Time end, ServerLoop::Time now) {
  if (end == ServerLoop::Time::max()) return -1;
  // Adds one because the division rounds down: waking too early would waste a round.
  const auto wait = duration_cast<milliseconds>(end - now) + milliseconds(1);
  return static_cast<int>(std::max(wait, milliseconds(0)).count());
}

}  // namespace

ServerLoop::ServerLoop(Options options, Entrance* entrance)
    : options_(std::move(options)),
      entrance_(*entrance),
      responder_(&options_.handlers, options_.guard.get()),
      clients_(options_.guard.get(), &responder_, options_.log),
      clients_budget_(options_.cpu_share * kClientsShare, kCpuBurst, MonotonicNow(),
                      kLongestSilence),
      entrance_budget_(options_.cpu_share * kHandoverShare, kHandoverBurst, MonotonicNow()),
      failure_(options_.log) {}

bool ServerLoop::Wait(const Wake& wake) {
  // Only open connections: poll(2) refuses more entries than RLIMIT_NOFILE.
  polled_.clear();
  indices_ = PollIndices();
  const Time start = MonotonicNow();
  Time next = entrance_.next();
  const bool may_serve = clients_budget_.Allows(start);
  if (!may_serve) next = std::min(next, clients_budget_.allows_from());
  const bool may_work = entrance_budget_.Allows(start);
  if (!may_work) next = std::min(next, entrance_budget_.allows_from());
  const auto add = [this](int fd) {
    polled_.push_back({fd, POLLIN, 0});
    return polled_.size() - 1;
  };
  indices_.has_clients = may_serve;
  if (may_serve) clients_.AppendPolled(&polled_, &next);
  indices_.wake = add(wake.fd());
  if (may_serve && options_.guard != nullptr) indices_.guard = add(options_.guard->verdicts().fd());
  if (may_serve && options_.ready != nullptr) indices_.ready = add(options_.ready->fd());
  const Time accept_from = std::max(clients_.accept_from(), entrance_.accept_from());
  indices_.was_open = entrance_.listener() >= 0;
  if (indices_.was_open && may_serve) {
    if (accept_from <= start) {
      indices_.listener = add(entrance_.listener());
    } else {
      next = std::min(next, accept_from);
    }
  }
  indices_.entrance = polled_.size();
  entrance_.AppendPolled(&polled_, may_work);
  if (poll(polled_.data(), polled_.size(), TimeoutUntil(next, start)) < 0) {
    // RLIMIT_NOFILE was lowered below the open descriptors, or the kernel has no memory.
    if (errno != EINTR) Pause(kPause);
    return false;
  }
  if (polled_[indices_.wake].revents != 0) wake.Clear();
  return true;
}

void ServerLoop::HandleRound() {
  const Time now = MonotonicNow();
  const bool has_verdict = HasCome(indices_.guard);
  if (has_verdict) options_.guard->verdicts().Clear();
  const bool has_answer = HasCome(indices_.ready);
  if (has_answer) options_.ready->Clear();
  if (has_verdict || has_answer) clients_.AnswerParked(now);
  Spend(&clients_budget_, now);
  entrance_.Handle(polled_.data() + indices_.entrance, now);
  Spend(&entrance_budget_, now);
  if (indices_.was_open && entrance_.listener() < 0) clients_.Leave();
  if (indices_.has_clients) clients_.Handle(polled_.data(), now);
  if (HasCome(indices_.listener) && entrance_.listener() >= 0) {
    clients_.Accept(entrance_.listener(), now);
  }
  Spend(&clients_budget_, now);
}

// Charges the thread's CPU time since the last call, except what handlers account for.
void ServerLoop::Spend(CpuBudget* budget, Time now) {
  std::chrono::nanoseconds used = ThreadCpuTime();
  if (options_.spent_by_handlers) used -= options_.spent_by_handlers();
  budget->Spend(used - cpu_accounted_, now);
  cpu_accounted_ = used;
}

void ServerLoop::StartOver(std::string_view what) noexcept {
  failure_.Give("HTTP endpoint closed all connections after an error: ", what);
  clients_.CloseAll();
  Pause(kPause);
}

void ServerLoop::Close() {
  clients_.CloseAll();
  entrance_.Close();
}

}  // namespace nccl_pulse
