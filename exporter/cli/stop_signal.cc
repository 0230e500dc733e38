#include "exporter/cli/stop_signal.h"

#include <csignal>

namespace nccl_pulse {
namespace {

std::atomic<bool> stop_asked{false};
static_assert(std::atomic<bool>::is_always_lock_free, "a signal's handler may store it");
void AskToStop(int /*signal*/) { stop_asked.store(true); }

}  // namespace

const std::atomic<bool>* StopOnSignal() {
  struct sigaction action = {};
  action.sa_handler = AskToStop;
  action.sa_flags = SA_RESETHAND | SA_RESTART;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  return &stop_asked;
}

}  // namespace nccl_pulse
