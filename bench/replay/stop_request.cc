#include "bench/replay/stop_request.h"

#include <csignal>

namespace nccl_pulse {

std::atomic<bool> stop_requested{false};

namespace {

static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler stores it");

void RequestStop(int /*signal*/) { stop_requested.store(true, std::memory_order_relaxed); }

}  // namespace

void HandleStopSignals() {
  struct sigaction action = {};
  action.sa_handler = RequestStop;
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

}  // namespace nccl_pulse
