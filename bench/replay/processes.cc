#include "bench/replay/processes.h"

#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <system_error>

#include "bench/replay/recorded_clock.h"
#include "bench/replay/replay_child.h"

namespace nccl_pulse {
namespace {

constexpr int64_t kSecondNs = 1'000'000'000;
constexpr int64_t kPollMs = 100;
// Idle time between two repetitions of a run.
constexpr int64_t kPauseNs = kSecondNs / 2;
// Delay from the last ready process to the start, so that none is late.
constexpr int64_t kStartDelayNs = 20'000'000;
// How long processes may take to finalize after a stop before they are killed.
constexpr int64_t kStopPatienceS = 10;

struct Child {
  std::string file;
  pid_t pid = -1;
  SharedRun* shared = nullptr;
  bool is_running = false;
};

class Parent {
 public:
  explicit Parent(const ProcessesOptions& options) : options_(options) {}

  int Run() {
    HandleStopSignals();
    for (const std::string& file : options_.files) {
      children_.push_back({file});
      if (Start(children_.back())) continue;
      std::fprintf(stderr, "replay: cannot start a process: %s\n",
                   std::generic_category().message(errno).c_str());
      End(kReplayCrashed);
      break;
    }
    while (std::any_of(children_.begin(), children_.end(),
                       [](const Child& child) { return child.is_running; })) {
      SleepMs(kPollMs);
      for (Child& child : children_) Reap(child);
      if (stop_requested.load(std::memory_order_relaxed)) End(kReplayInterrupted);
      if (stopping_since_ns_ == 0) {
        if (!is_started_) StartWhenReady();
        AnnounceReplayed();
      } else if (recorded_clock::RealNow() - stopping_since_ns_ > kStopPatienceS * kSecondNs) {
        SignalAll(SIGKILL);
      }
    }
    if (exit_ == kReplayDone) AnnounceReplayed();
    return exit_;
  }

 private:
  // False, with errno set, on failure.
  bool Start(Child& child) {
    void* memory =
        mmap(nullptr, sizeof(SharedRun), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return false;
    child.shared = new (memory) SharedRun;
    // Buffered output must not be written twice.
    std::fflush(nullptr);
    const pid_t parent = getpid();
    child.pid = fork();
    if (child.pid == 0) {
      // If the parent dies, the children must end too, in order.
      prctl(PR_SET_PDEATHSIG, SIGTERM);
      if (getppid() != parent) _exit(kReplayInterrupted);
      // exit, not _exit: static objects of the plugin are destroyed as in any job.
      std::exit(RunChild(child.file, options_, *child.shared));
    }
    child.is_running = child.pid > 0;
    return child.is_running;
  }

  void SignalAll(int signal) const {
    for (const Child& child : children_) {
      if (child.is_running) kill(child.pid, signal);
    }
  }

  // The first failure decides the exit status.
  void End(int exit) {
    if (stopping_since_ns_ != 0) return;
    stopping_since_ns_ = recorded_clock::RealNow();
    exit_ = exit;
    SignalAll(SIGTERM);
  }

  void Reap(Child& child) {
    int status = 0;
    if (!child.is_running || waitpid(child.pid, &status, WNOHANG) != child.pid) return;
    child.is_running = false;
    if (WIFEXITED(status)) {  // the child has printed the reason
      if (WEXITSTATUS(status) != kReplayDone) End(WEXITSTATUS(status));
    } else if (stopping_since_ns_ == 0 || WTERMSIG(status) != SIGTERM) {
      std::fprintf(stderr, "replay: %s (pid %d) was killed by signal %d (%s)\n", child.file.c_str(),
                   child.pid, WTERMSIG(status), sigdescr_np(WTERMSIG(status)));
      End(kReplayCrashed);
    }
  }

  // If all have read their trace: computes the common time of the run and starts them.
  void StartWhenReady() {
    int64_t first_ns = INT64_MAX;
    int64_t last_ns = INT64_MIN;
    for (const Child& child : children_) {
      const SharedRun& shared = *child.shared;
      if (shared.phase.load(std::memory_order_acquire) != Phase::kReady) return;
      first_ns = std::min(first_ns, shared.first_ns);
      last_ns = std::max(last_ns, shared.last_ns);
    }
    const int64_t start_ns = recorded_clock::RealNow() + kStartDelayNs;
    for (const Child& child : children_) {
      SharedRun& shared = *child.shared;
      shared.run_first_ns = first_ns;
      shared.period_ns = last_ns - first_ns + kPauseNs;
      shared.start_ns.store(start_ns, std::memory_order_release);
    }
    is_started_ = true;
  }

  void AnnounceReplayed() {
    if (is_replayed_ || !is_started_) return;
    uint64_t passed = 0;
    uint64_t made = 0;
    for (const Child& child : children_) {
      const SharedRun& shared = *child.shared;
      if (shared.phase.load(std::memory_order_acquire) != Phase::kReplayed) return;
      passed += shared.progress.callbacks.load(std::memory_order_relaxed);
      made += shared.progress.made.load(std::memory_order_relaxed);
    }
    is_replayed_ = true;
    std::printf("replayed %zu processes: %llu recorded callbacks, %llu made%s\n", children_.size(),
                static_cast<unsigned long long>(passed), static_cast<unsigned long long>(made),
                options_.hold_s > 0 ? "; holding" : "");
    std::fflush(stdout);
  }

  const ProcessesOptions& options_;
  std::vector<Child> children_;
  int exit_ = kReplayDone;
  int64_t stopping_since_ns_ = 0;  // 0: not stopping
  bool is_started_ = false;
  bool is_replayed_ = false;
};

}  // namespace

int ReplayProcesses(const ProcessesOptions& options) { return Parent(options).Run(); }

}  // namespace nccl_pulse
