#include "exporter/cli/agent_hang.h"

#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "exporter/base/patient_thread.h"
#include "exporter/watch/watcher.h"

namespace nccl_pulse {

using std::chrono::steady_clock;

namespace {

constexpr std::chrono::seconds kInterval{2};

}  // namespace

struct AgentHangWatch::State : PatientThread {
  State(std::unique_ptr<HangProgram> hang_program, Watcher::Options options)
      : program(std::move(hang_program)), watcher(std::move(options)) {}

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
  }

  const std::unique_ptr<HangProgram> program;
  Watcher watcher;
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
  const std::string error = PatientThread::Start(state, [log](State& its) { its.Run(log); });
  if (!error.empty()) {
    log(LogLevel::kWarning, absl::StrCat("hangs are not looked for: ", error));
    return nullptr;
  }
  auto watch = std::make_unique<AgentHangWatch>();
  watch->state_ = std::move(state);
  return watch;
}

bool AgentHangWatch::Stop(std::chrono::milliseconds patience) {
  return state_->Stop(patience) && state_->program->Stop(patience);
}

}  // namespace nccl_pulse
