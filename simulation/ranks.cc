#include "simulation/ranks.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <system_error>

namespace nccl_pulse::simulation {
namespace {

constexpr int kPatienceMs = 10'000;
constexpr int kLookMs = 10;

// ---- in a rank's process ------------------------------------------------------------------------

std::atomic<bool> g_stop{false};
int g_messages = -1;

void RequestStop(int /*signal*/) { g_stop.store(true); }

// NCCL's logger. A line is W or I, then the text, in one write, so that lines do not mix. A full
// pipe drops the message and never delays the caller.
__attribute__((format(printf, 5, 6))) void Log(int level, unsigned long /*flags*/,
                                               const char* /*file*/, int /*line*/,
                                               const char* format, ...) {
  char line[PIPE_BUF];
  line[0] = level <= abi::kLogWarn ? 'W' : 'I';
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(line + 1, sizeof(line) - 2, format, arguments);
  va_end(arguments);
  const size_t size = std::strlen(line);
  std::replace(line, line + size, '\n', ' ');
  line[size] = '\n';
  while (write(g_messages, line, size + 1) < 0 && errno == EINTR) {
  }
}

void HandleSignals() {
  struct sigaction action = {};
  action.sa_handler = RequestStop;
  sigemptyset(&action.sa_mask);
  sigaction(SIGTERM, &action, nullptr);
  // Ctrl-C signals the whole process group. The conductor decides when and in which order to end.
  action.sa_handler = SIG_IGN;
  sigaction(SIGINT, &action, nullptr);
}

std::string Reason() { return std::generic_category().message(errno); }

}  // namespace

// ---- in the conductor ---------------------------------------------------------------------------

Ranks::~Ranks() {
  Stop();
  for (const Process& process : processes_) {
    if (process.messages >= 0) close(process.messages);
  }
  if (job_ != nullptr) munmap(job_, sizeof(SharedJob));
}

bool Ranks::Start(JobOptions options, std::string* error) {
  void* memory =
      mmap(nullptr, sizeof(SharedJob), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    *error = "no memory for the job: " + Reason();
    return false;
  }
  job_ = new (memory) SharedJob;
  options.logger = Log;
  for (int rank = 0; rank < static_cast<int>(kRanks); ++rank) {
    if (!StartOne(options, rank, error)) return false;
  }
  return true;
}

bool Ranks::StartOne(const JobOptions& options, int rank, std::string* error) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    *error = "no pipe for a process: " + Reason();
    return false;
  }
  std::fflush(nullptr);  // buffered output must not be written twice
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) {
    *error = "cannot start a process: " + Reason();
    close(ends[0]);
    close(ends[1]);
    return false;
  }
  if (pid == 0) {
    HandleSignals();
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) _exit(EXIT_FAILURE);
    g_messages = ends[1];
    fcntl(g_messages, F_SETFL, O_NONBLOCK);
    // As torchrun --rdzv-id=demo does. No thread exists yet.
    const std::string number = std::to_string(rank);
    setenv("RANK", number.c_str(), 1);
    setenv("LOCAL_RANK", number.c_str(), 1);
    setenv("TORCHELASTIC_RUN_ID", "demo", 0);
    const bool ran = RunRank(options, rank, job_, g_stop);
    // exit, not _exit: static objects of the plugin are destroyed as in any job.
    std::exit(ran ? EXIT_SUCCESS : EXIT_FAILURE);
  }
  close(ends[1]);
  fcntl(ends[0], F_SETFL, O_NONBLOCK);
  processes_.push_back({pid, ends[0], ""});
  return true;
}

std::vector<Ranks::Message> Ranks::Read(int patience_ms) {
  std::vector<pollfd> waits;
  for (const Process& process : processes_) waits.push_back({process.messages, POLLIN, 0});
  poll(waits.data(), waits.size(), patience_ms);
  std::vector<Message> messages;
  for (size_t rank = 0; rank < processes_.size(); ++rank) {
    Process& process = processes_[rank];
    char buffer[4096];
    ssize_t size = 0;
    while (process.messages >= 0 && (size = read(process.messages, buffer, sizeof(buffer))) > 0) {
      process.partial_line.append(buffer, static_cast<size_t>(size));
    }
    if (process.messages >= 0 && size == 0) {  // it ended
      close(process.messages);
      process.messages = -1;
    }
    for (size_t end = 0; (end = process.partial_line.find('\n')) != std::string::npos;) {
      const std::string line = process.partial_line.substr(0, end);
      process.partial_line.erase(0, end + 1);
      if (line.empty()) continue;
      messages.push_back({static_cast<int>(rank), line[0] == 'W', line.substr(1)});
    }
  }
  return messages;
}

bool Ranks::HasLost(std::string* how) {
  for (size_t rank = 0; rank < processes_.size(); ++rank) {
    Process& process = processes_[rank];
    int status = 0;
    if (process.pid < 0 || waitpid(process.pid, &status, WNOHANG) != process.pid) continue;
    *how = "rank " + std::to_string(rank) + " (pid " + std::to_string(process.pid) + ") ";
    *how += WIFSIGNALED(status)
                ? std::string("was killed by signal ") + std::to_string(WTERMSIG(status)) + " (" +
                      sigdescr_np(WTERMSIG(status)) + ")"
                : "ended by itself with status " + std::to_string(WEXITSTATUS(status));
    process.pid = -1;
    return true;
  }
  return false;
}

bool Ranks::Stop() {
  bool in_order = true;
  for (int waited_ms = 0;; waited_ms += kLookMs) {
    bool any = false;
    for (Process& process : processes_) {
      int status = 0;
      if (process.pid > 0 && waitpid(process.pid, &status, WNOHANG) == process.pid) {
        process.pid = -1;
      }
      if (process.pid <= 0) continue;
      any = true;
      in_order = in_order && waited_ms != kPatienceMs;
      // Each time: a newly forked process still has the conductor's handler.
      kill(process.pid, waited_ms == kPatienceMs ? SIGKILL : SIGTERM);
    }
    if (!any) return in_order;
    Read(0);  // drains the pipe: a full one would lose messages
    usleep(kLookMs * 1000);
  }
}

}  // namespace nccl_pulse::simulation
