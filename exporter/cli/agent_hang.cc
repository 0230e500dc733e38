#include "exporter/cli/agent_hang.h"

#include <condition_variable>
#include <exception>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "exporter/watch/watcher.h"

namespace nccl_pulse {

using std::chrono::steady_clock;

namespace {

constexpr std::chrono::seconds kInterval{2};

}  // namespace

// Kept by the thread, too: it may outlive its owner.
struct AgentHangWatch::State {
  State(std::unique_ptr<HangProgram> hang_program, Watcher::Options options)
      : program(std::move(hang_program)), watcher(std::move(options)) {}

  // False when the thread is to end.
  bool WaitUntil(steady_clock::time_point time) {
    std::unique_lock<std::mutex> lock(mutex);
    return !changed.wait_until(lock, time, [this] { return is_stopping; });
  }

  void Run(const LogFunction& log) {
    auto next = steady_clock::now();
    while (WaitUntil(next)) {
      next = steady_clock::now() + kInterval;
      try {
        watcher.Round();
        next = watcher.NextRound(next);
      } catch (const std::exception& problem) {
        log(LogLevel::kWarning, absl::StrCat("hangs were not looked for: ", problem.what()));
      }
    }
    const std::lock_guard<std::mutex> lock(mutex);
    has_ended = true;
    changed.notify_all();
  }

  const std::unique_ptr<HangProgram> program;
  Watcher watcher;
  std::mutex mutex;  // guards the rest
  std::condition_variable changed;
  bool is_stopping = false, has_ended = false;
};

std::unique_ptr<AgentHangWatch> AgentHangWatch::Start(HangProgram::Options options, Address own,
                                                      FleetClientOptions client) {
  const LogFunction log = options.log;
  auto program = HangProgram::Start(std::move(options));
  if (program == nullptr) return nullptr;
  Watcher::Options watched;
  watched.find = [own, client](std::vector<Address>* endpoints, FleetClientOptions* found,
                               std::string* /*error*/) {
    *endpoints = {own};
    *found = client;
    return true;
  };
  watched.tell = [told = program.get()](const WatchState& state) { told->See(state); };
  auto state = std::make_shared<State>(std::move(program), std::move(watched));
  try {
    std::thread([state, log] { state->Run(log); }).detach();
  } catch (const std::system_error& problem) {
    log(LogLevel::kWarning, absl::StrCat("hangs are not looked for: ", problem.what()));
    return nullptr;
  }
  auto watch = std::make_unique<AgentHangWatch>();
  watch->state_ = std::move(state);
  return watch;
}

bool AgentHangWatch::Stop(std::chrono::milliseconds patience) {
  {
    std::unique_lock<std::mutex> lock(state_->mutex);
    state_->is_stopping = true;
    state_->changed.notify_all();
    if (!state_->changed.wait_for(lock, patience, [this] { return state_->has_ended; }))
      return false;
  }
  return state_->program->Stop(patience);
}

}  // namespace nccl_pulse
