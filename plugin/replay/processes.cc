#include "plugin/replay/processes.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <set>
#include <string_view>
#include <system_error>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "plugin/replay/recorded_clock.h"
#include "plugin/replay/reduction.h"
#include "plugin/replay/trace_file.h"

namespace nccl_pulse {
namespace {

constexpr int64_t kSecondNs = 1'000'000'000;
constexpr int kPollMs = 100;
constexpr int64_t kProgressLineNs = 5 * kSecondNs;
// How long processes may take to finalize after a stop before they are killed.
constexpr int64_t kPatienceNs = 10 * kSecondNs;
// Idle time between two repetitions of a run.
constexpr int64_t kPauseNs = kSecondNs / 2;
// Processes start this long after the last one is ready, so that none is late.
constexpr int64_t kStartDelayNs = 20'000'000;

// SIGINT or SIGTERM came. Set by the handler; each process has its own.
std::atomic<bool> stop_requested{false};
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler stores it");

void RequestStop(int /*signal*/) { stop_requested.store(true, std::memory_order_relaxed); }

void HandleStopSignals() {
  struct sigaction action = {};
  action.sa_handler = RequestStop;
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

enum class Phase : int { kLoading, kReady, kReplaying, kReplayed };

// In memory that parent and child share. Relaxed accesses everywhere but for `phase` and
// `start_ns`, which publish what was written before them.
struct Shared {
  std::atomic<Phase> phase{Phase::kLoading};
  int64_t first_ns = 0;  // by the child, before kReady
  int64_t last_ns = 0;
  uint64_t callbacks_in_trace = 0;
  std::atomic<int64_t> start_ns{0};  // by the parent, after the values below
  int64_t run_first_ns = 0;
  int64_t period_ns = 0;
  ReplayProgress progress;
};

struct Process {
  std::string file;
  std::string name;  // the file's without folder and suffix
  pid_t pid = -1;
  int messages = -1;  // read end of the pipe
  std::string partial_line;
  std::string error;  // why it failed, as it said
  Shared* shared = nullptr;
  bool running = false;
};

// The address that a plugin announced, as it works on this machine: a host's own name need not
// resolve.
std::string LocalAddress(const std::string& url) {
  constexpr std::string_view kScheme = "http://";
  char host[256] = {};
  if (gethostname(host, sizeof(host) - 1) != 0) return url;
  const std::string named = absl::StrCat(kScheme, host, ":");
  if (url.compare(0, named.size(), named) != 0) return url;
  return absl::StrCat(kScheme, "localhost:", url.substr(named.size()));
}

std::string BaseName(const std::string& path) {
  std::string name = path.substr(path.rfind('/') + 1);
  return name.substr(0, name.find(".jsonl"));
}

// --- In the child
// ----------------------------------------------------------------------------------

// Messages to the parent are lines: a letter for what it is, then the text.
constexpr char kErrorMessage = 'E';
constexpr char kLogMessage = 'L';

int message_pipe = -1;

// One write: lines of several threads do not mix up to PIPE_BUF bytes.
void SendMessage(char kind, std::string_view text) {
  std::string line = absl::StrCat(std::string_view(&kind, 1), text.substr(0, PIPE_BUF - 2));
  std::replace(line.begin(), line.end(), '\n', ' ');
  line.push_back('\n');
  while (write(message_pipe, line.data(), line.size()) < 0 && errno == EINTR) {
  }
}

bool ShowInformation() {
  static const bool kShow = [] {
    // Nothing in this process changes the environment any more.
    const char* level = std::getenv("NCCL_DEBUG");  // NOLINT(concurrency-mt-unsafe)
    return level != nullptr && (strcasecmp(level, "INFO") == 0 || strcasecmp(level, "TRACE") == 0);
  }();
  return kShow;
}

// NCCL's logger. Like NCCL it shows warnings always and information if NCCL_DEBUG asks for it;
// lines with an address pass too, because whoever replays wants to know where to look.
__attribute__((format(printf, 5, 6))) void Log(int level, unsigned long /*flags*/,
                                               const char* /*file*/, int /*line*/,
                                               const char* format, ...) {
  char text[1024];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof(text), format, arguments);
  va_end(arguments);
  if (level <= abi::kLogWarn || ShowInformation() || std::strstr(text, "http://") != nullptr) {
    SendMessage(kLogMessage, text);
  }
}

int Fail(ReplayExit exit, const absl::Status& status) {
  SendMessage(kErrorMessage, status.message());
  return exit;
}

ReplayExit ExitOfRead(const absl::Status& status) {
  return status.code() == absl::StatusCode::kDataLoss ? kReplayBrokenTrace : kReplayNoFolder;
}

void SleepMs(int64_t ms) {
  const timespec pause = {ms / 1000, (ms % 1000) * 1'000'000};
  nanosleep(&pause, nullptr);
}

// A child's whole life; returns its exit status.
int RunChild(const std::string& file, const ProcessesOptions& options, Shared& shared) {
  absl::StatusOr<std::string> text = ReadTraceText(file);
  if (!text.ok()) return Fail(ExitOfRead(text.status()), text.status());
  absl::StatusOr<Trace> trace = ParseTrace(file, *text);
  if (!trace.ok()) return Fail(kReplayBrokenTrace, trace.status());
  text->clear();
  text->shrink_to_fit();
  AddCaptureCallbacks(*trace);

  const auto by_time = [](const TraceEvent& a, const TraceEvent& b) { return a.t_ns < b.t_ns; };
  const auto [first, last] =
      std::minmax_element(trace->events.begin(), trace->events.end(), by_time);
  shared.first_ns = first->t_ns;
  shared.last_ns = last->t_ns;
  shared.callbacks_in_trace = trace->events.size();
  shared.phase.store(Phase::kReady, std::memory_order_release);
  while (shared.start_ns.load(std::memory_order_acquire) == 0) {
    if (stop_requested.load(std::memory_order_relaxed)) return kReplayInterrupted;
    SleepMs(1);
  }

  ReplayOptions replay = options.replay;
  replay.logger = Log;
  replay.first_ns = shared.run_first_ns;
  replay.start_ns = shared.start_ns.load(std::memory_order_relaxed);
  replay.period_ns = shared.period_ns;
  shared.phase.store(Phase::kReplaying, std::memory_order_relaxed);
  const absl::Status status = Replay(*trace, replay, shared.progress, stop_requested);
  if (!status.ok()) {
    return Fail(absl::IsNotFound(status) ? kReplayNoLibrary : kReplayNoSymbol, status);
  }
  shared.phase.store(Phase::kReplayed, std::memory_order_release);

  const int64_t end_ns = recorded_clock::RealNow() +
                         static_cast<int64_t>(options.hold_s * static_cast<double>(kSecondNs));
  while (!stop_requested.load(std::memory_order_relaxed)) {
    const int64_t left_ns = end_ns - recorded_clock::RealNow();
    if (left_ns <= 0) return kReplayDone;
    SleepMs(std::clamp<int64_t>(left_ns / 1'000'000, 1, 50));
  }
  return kReplayInterrupted;
}

// --- In the parent
// ---------------------------------------------------------------------------------

class Parent {
 public:
  explicit Parent(const ProcessesOptions& options)
      : options_(options), terminal_(isatty(STDERR_FILENO) == 1) {}

  ~Parent() {
    for (Process& process : processes_) {
      if (process.messages >= 0) close(process.messages);
      if (process.shared != nullptr) munmap(process.shared, sizeof(Shared));
    }
  }

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
      if (stopping_since_ns_ != 0 && recorded_clock::RealNow() - stopping_since_ns_ > kPatienceNs) {
        for (const Process& process : processes_) {
          if (process.running) kill(process.pid, SIGKILL);
        }
      }
      if (stopping_since_ns_ == 0) {
        StartWhenReady();
        ShowProgress();
        AnnounceReplayed();
      }
    }
    if (exit_ == kReplayDone) AnnounceReplayed();
    ClearLine();
    return exit_;
  }

 private:
  bool Spawn(const std::string& file) {
    Process process;
    process.file = file;
    process.name = BaseName(file);
    void* memory =
        mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int ends[2];
    if (memory == MAP_FAILED || pipe2(ends, O_CLOEXEC) != 0) {
      ReportNoProcess();
      return false;
    }
    process.shared = new (memory) Shared;
    process.messages = ends[0];
    // What is buffered must not be written twice.
    std::fflush(nullptr);
    const pid_t parent = getpid();
    process.pid = fork();
    if (process.pid < 0) {
      ReportNoProcess();
      close(ends[1]);
      return false;
    }
    if (process.pid == 0) {
      // Should the parent die, the children go too, in order.
      prctl(PR_SET_PDEATHSIG, SIGTERM);
      if (getppid() != parent) _exit(kReplayInterrupted);
      message_pipe = ends[1];
      // A callback must never wait for this program's output: a full pipe costs the message.
      fcntl(message_pipe, F_SETFL, O_NONBLOCK);
      // exit, not _exit: static objects of the plugin are destroyed as in any job.
      std::exit(RunChild(file, options_, *process.shared));  // NOLINT(concurrency-mt-unsafe)
    }
    close(ends[1]);
    fcntl(process.messages, F_SETFL, O_NONBLOCK);
    process.running = true;
    processes_.push_back(std::move(process));
    return true;
  }

  static void ReportNoProcess() {
    std::fprintf(stderr, "pulse: cannot start a process: %s\n",
                 std::generic_category().message(errno).c_str());
  }

  bool AnyRunning() const {
    return std::any_of(processes_.begin(), processes_.end(),
                       [](const Process& process) { return process.running; });
  }

  void StopAll() {
    if (stopping_since_ns_ == 0) stopping_since_ns_ = recorded_clock::RealNow();
    for (const Process& process : processes_) {
      if (process.running) kill(process.pid, SIGTERM);
    }
  }

  // Waits a moment for messages and shows them.
  void ReadMessages() {
    std::vector<pollfd> waits;
    for (const Process& process : processes_) waits.push_back({process.messages, POLLIN, 0});
    poll(waits.data(), waits.size(), kPollMs);
    for (Process& process : processes_) Drain(process);
  }

  void Drain(Process& process) {
    if (process.messages < 0) return;
    char buffer[4096];
    for (;;) {
      const ssize_t size = read(process.messages, buffer, sizeof(buffer));
      if (size < 0 && errno == EINTR) continue;
      if (size == 0) {  // all writers are gone
        close(process.messages);
        process.messages = -1;
      }
      if (size <= 0) return;
      process.partial_line.append(buffer, static_cast<size_t>(size));
      std::vector<std::string> lines = absl::StrSplit(process.partial_line, '\n');
      process.partial_line = lines.back();
      lines.pop_back();
      for (const std::string& line : lines) ShowMessage(process, line);
    }
  }

  void ShowMessage(Process& process, const std::string& line) {
    if (line.empty()) return;
    const std::string text = line.substr(1);
    if (line[0] == kErrorMessage) {
      process.error = text;
      return;
    }
    ClearLine();
    const size_t url = text.find("http://");
    if (url != std::string::npos) {
      const std::string address =
          LocalAddress(text.substr(url, text.find_first_of(" \t,;)\"'", url) - url));
      if (announced_.insert(address).second) {
        std::printf("%s: %s\n", process.name.c_str(), address.c_str());
        std::fflush(stdout);
      }
      if (!ShowInformation()) return;
    }
    std::fprintf(stderr, "%s: %s\n", process.name.c_str(), text.c_str());
  }

  void Reap() {
    for (Process& process : processes_) {
      int status = 0;
      if (!process.running || waitpid(process.pid, &status, WNOHANG) != process.pid) continue;
      process.running = false;
      Drain(process);
      if (WIFEXITED(status) && WEXITSTATUS(status) == kReplayDone) continue;
      if (WIFEXITED(status) && WEXITSTATUS(status) == kReplayInterrupted &&
          stopping_since_ns_ != 0) {
        continue;
      }
      ReportFailure(process, status);
      StopAll();
    }
  }

  // The first failure decides the exit status; the same failure of another process is not repeated,
  // nor are deaths of processes that were told to stop.
  void ReportFailure(const Process& process, int status) {
    const bool killed_by_us = stopping_since_ns_ != 0 && WIFSIGNALED(status) &&
                              (WTERMSIG(status) == SIGTERM || WTERMSIG(status) == SIGKILL);
    const bool said = !process.error.empty();
    int exit = kReplayCrashed;
    std::string message;
    if (said) {
      exit = WEXITSTATUS(status);
      message = process.error;
    } else if (killed_by_us) {
      if (WTERMSIG(status) == SIGTERM) return;
      message = absl::StrFormat("%s (pid %d) did not stop within %d s and was killed", process.file,
                                process.pid, kPatienceNs / kSecondNs);
    } else if (WIFSIGNALED(status)) {
      message = absl::StrFormat("%s (pid %d) was killed by signal %d (%s)%s", process.file,
                                process.pid, WTERMSIG(status), sigdescr_np(WTERMSIG(status)),
                                WCOREDUMP(status) ? ", core dumped" : "");
    } else {
      message = absl::StrFormat("%s (pid %d) ended by itself with status %d", process.file,
                                process.pid, WEXITSTATUS(status));
    }
    if (exit_ == kReplayDone) exit_ = exit;
    if (!reported_.insert(message).second) return;
    ClearLine();
    std::fprintf(stderr, "pulse: %s\n", message.c_str());
  }

  // All have read their trace: computes the run's common time and lets them go.
  void StartWhenReady() {
    if (started_) return;
    int64_t first_ns = INT64_MAX;
    int64_t last_ns = INT64_MIN;
    for (const Process& process : processes_) {
      if (process.shared->phase.load(std::memory_order_acquire) != Phase::kReady) return;
      first_ns = std::min(first_ns, process.shared->first_ns);
      last_ns = std::max(last_ns, process.shared->last_ns);
    }
    const int64_t start_ns = recorded_clock::RealNow() + kStartDelayNs;
    for (const Process& process : processes_) {
      process.shared->run_first_ns = first_ns;
      process.shared->period_ns = last_ns - first_ns + kPauseNs;
      process.shared->start_ns.store(start_ns, std::memory_order_release);
    }
    started_ = true;
  }

  void ShowProgress() {
    if (!started_ || replayed_) return;
    const int64_t now_ns = recorded_clock::RealNow();
    if (!terminal_ && now_ns - last_progress_ns_ < kProgressLineNs) return;
    uint64_t passed = 0;
    uint64_t run = 0;
    for (const Process& process : processes_) {
      passed += process.shared->progress.callbacks.load(std::memory_order_relaxed);
      run += process.shared->callbacks_in_trace;
    }
    if (last_progress_ns_ != 0 || terminal_) {
      std::string line = absl::StrFormat("replaying %d processes: ", processes_.size());
      if (options_.replay.repeat == 1) {
        absl::StrAppendFormat(&line, "%d %%, ", 100 * passed / run);
      } else {
        absl::StrAppendFormat(&line, "run %d", passed / run + 1);
        if (options_.replay.repeat != 0)
          absl::StrAppendFormat(&line, " of %d", options_.replay.repeat);
        absl::StrAppendFormat(&line, ", %d %%, ", 100 * (passed % run) / run);
      }
      absl::StrAppendFormat(&line, "%d callbacks", passed);
      std::fprintf(stderr, terminal_ ? "\r\033[K%s" : "%s\n", line.c_str());
      line_open_ = terminal_;
    }
    last_progress_ns_ = now_ns;
  }

  void AnnounceReplayed() {
    if (replayed_ || !started_) return;
    uint64_t passed = 0;
    uint64_t made = 0;
    for (const Process& process : processes_) {
      if (process.shared->phase.load(std::memory_order_acquire) != Phase::kReplayed) return;
      passed += process.shared->progress.callbacks.load(std::memory_order_relaxed);
      made += process.shared->progress.made.load(std::memory_order_relaxed);
    }
    replayed_ = true;
    ClearLine();
    std::printf("replayed %zu processes: %llu recorded callbacks, %llu made%s\n", processes_.size(),
                static_cast<unsigned long long>(passed), static_cast<unsigned long long>(made),
                options_.hold_s > 0 ? "; holding" : "");
    std::fflush(stdout);
  }

  void ClearLine() {
    if (line_open_) std::fputs("\r\033[K", stderr);
    line_open_ = false;
  }

  const ProcessesOptions& options_;
  const bool terminal_;
  std::vector<Process> processes_;
  int exit_ = kReplayDone;
  int64_t stopping_since_ns_ = 0;  // 0: not
  bool started_ = false;
  bool replayed_ = false;
  bool line_open_ = false;
  int64_t last_progress_ns_ = 0;
  std::set<std::string> announced_;
  std::set<std::string> reported_;
};

}  // namespace

int ReplayProcesses(const ProcessesOptions& options) { return Parent(options).Run(); }

}  // namespace nccl_pulse
