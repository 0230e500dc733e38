#include "bench/replay/processes.h"

#include <poll.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <list>
#include <string>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/replay/child_messages.h"
#include "bench/replay/recorded_clock.h"
#include "bench/replay/replay_console.h"
#include "bench/replay/replay_process.h"
#include "bench/replay/stop_request.h"

namespace nccl_pulse {
namespace {

constexpr int64_t kSecondNs = 1'000'000'000;
constexpr int kPollMs = 100;
// Idle time between two repetitions of a run.
constexpr int64_t kPauseNs = kSecondNs / 2;
// Delay from the last ready process to the start, so that none is late.
constexpr int64_t kStartDelayNs = 20'000'000;

class Parent {
 public:
  explicit Parent(const ProcessesOptions& options) : options_(options) {}

  int Run() {
    HandleStopSignals();
    for (const std::string& file : options_.files) {
      if (!Spawn(file)) {
        StopAll();
        exit_ = kReplayCrashed;
        break;
      }
    }
    while (AnyRunning()) {
      ReadMessages();
      Reap();
      if (stop_requested.load(std::memory_order_relaxed) && exit_ == kReplayDone) {
        exit_ = kReplayInterrupted;
        StopAll();
      }
      if (is_stopping() &&
          recorded_clock::RealNow() - stopping_since_ns_ > kStopPatienceS * kSecondNs) {
        for (const ReplayProcess& process : processes_) process.Signal(SIGKILL);
      }
      if (!is_stopping()) {
        StartWhenReady();
        ShowProgress();
        AnnounceReplayed();
      }
    }
    if (exit_ == kReplayDone) AnnounceReplayed();
    console_.ClearLine();
    return exit_;
  }

 private:
  bool is_stopping() const { return stopping_since_ns_ != 0; }

  bool Spawn(const std::string& file) {
    if (processes_.emplace_back(file).Start(options_)) return true;
    console_.ShowProblem(
        absl::StrCat("cannot start a process: ", std::generic_category().message(errno)));
    processes_.pop_back();
    return false;
  }

  bool AnyRunning() const {
    return std::any_of(processes_.begin(), processes_.end(),
                       [](const ReplayProcess& process) { return process.is_running(); });
  }

  void StopAll() {
    if (!is_stopping()) stopping_since_ns_ = recorded_clock::RealNow();
    for (const ReplayProcess& process : processes_) process.Signal(SIGTERM);
  }

  // Waits briefly for messages and shows them.
  void ReadMessages() {
    std::vector<pollfd> waits;
    for (const ReplayProcess& process : processes_) {
      waits.push_back({process.messages(), POLLIN, 0});
    }
    poll(waits.data(), waits.size(), kPollMs);
    for (ReplayProcess& process : processes_) ShowMessages(process);
  }

  void ShowMessages(ReplayProcess& process) {
    for (const std::string& line : process.ReadLines()) {
      if (line.empty()) continue;
      const std::string text = line.substr(1);
      if (line[0] == kErrorMessage) {
        process.SetError(text);
      } else {
        console_.ShowLog(process.name(), text);
      }
    }
  }

  // The first failure decides the exit status.
  void Reap() {
    for (ReplayProcess& process : processes_) {
      int status = 0;
      if (!process.Reap(&status)) continue;
      ShowMessages(process);
      int exit = kReplayDone;
      const std::string problem = process.DescribeEnd(status, is_stopping(), &exit);
      if (!problem.empty()) {
        if (exit_ == kReplayDone) exit_ = exit;
        console_.ShowProblem(problem);
      }
      if (exit != kReplayDone) StopAll();
    }
  }

  // If all have read their trace: computes the common time of the run and starts them.
  void StartWhenReady() {
    if (started_) return;
    int64_t first_ns = INT64_MAX;
    int64_t last_ns = INT64_MIN;
    for (const ReplayProcess& process : processes_) {
      const SharedRun& shared = process.shared();
      if (shared.phase.load(std::memory_order_acquire) != Phase::kReady) return;
      first_ns = std::min(first_ns, shared.first_ns);
      last_ns = std::max(last_ns, shared.last_ns);
    }
    const int64_t start_ns = recorded_clock::RealNow() + kStartDelayNs;
    for (const ReplayProcess& process : processes_) {
      SharedRun& shared = process.shared();
      shared.run_first_ns = first_ns;
      shared.period_ns = last_ns - first_ns + kPauseNs;
      shared.start_ns.store(start_ns, std::memory_order_release);
    }
    started_ = true;
  }

  void ShowProgress() {
    if (!started_ || replayed_) return;
    uint64_t passed = 0;
    uint64_t run = 0;
    for (const ReplayProcess& process : processes_) {
      passed += process.shared().progress.callbacks.load(std::memory_order_relaxed);
      run += process.shared().callbacks_in_trace;
    }
    console_.ShowProgress(static_cast<int>(processes_.size()), passed, run, options_.replay.repeat);
  }

  void AnnounceReplayed() {
    if (replayed_ || !started_) return;
    uint64_t passed = 0;
    uint64_t made = 0;
    for (const ReplayProcess& process : processes_) {
      const SharedRun& shared = process.shared();
      if (shared.phase.load(std::memory_order_acquire) != Phase::kReplayed) return;
      passed += shared.progress.callbacks.load(std::memory_order_relaxed);
      made += shared.progress.made.load(std::memory_order_relaxed);
    }
    replayed_ = true;
    console_.ShowReplayed(static_cast<int>(processes_.size()), passed, made, options_.hold_s > 0);
  }

  const ProcessesOptions& options_;
  ReplayConsole console_;
  std::list<ReplayProcess> processes_;  // a list, because they must not move
  int exit_ = kReplayDone;
  int64_t stopping_since_ns_ = 0;  // 0: not stopping
  bool started_ = false;
  bool replayed_ = false;
};

}  // namespace

int ReplayProcesses(const ProcessesOptions& options) { return Parent(options).Run(); }

}  // namespace nccl_pulse
