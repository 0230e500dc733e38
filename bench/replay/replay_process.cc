#include "bench/replay/replay_process.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "bench/replay/child_messages.h"
#include "bench/replay/replay_child.h"

namespace nccl_pulse {
namespace {

std::string BaseName(const std::string& path) {
  std::string name = path.substr(path.rfind('/') + 1);
  return name.substr(0, name.find(".jsonl"));
}

}  // namespace

ReplayProcess::ReplayProcess(std::string file) : file_(std::move(file)), name_(BaseName(file_)) {}

ReplayProcess::~ReplayProcess() {
  if (messages_ >= 0) close(messages_);
  if (shared_ != nullptr) munmap(shared_, sizeof(SharedRun));
}

bool ReplayProcess::Start(const ProcessesOptions& options) {
  void* memory =
      mmap(nullptr, sizeof(SharedRun), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return false;
  shared_ = new (memory) SharedRun;
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return false;
  messages_ = ends[0];
  // Buffered output must not be written twice.
  std::fflush(nullptr);
  const pid_t parent = getpid();
  pid_ = fork();
  if (pid_ == 0) {
    // If the parent dies, the children must end too, in order.
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) _exit(kReplayInterrupted);
    SetMessagePipe(ends[1]);
    // exit, not _exit: static objects of the plugin are destroyed as in any job.
    std::exit(RunChild(file_, options, *shared_));
  }
  const int error = errno;
  close(ends[1]);
  errno = error;
  if (pid_ < 0) return false;
  fcntl(messages_, F_SETFL, O_NONBLOCK);
  is_running_ = true;
  return true;
}

std::vector<std::string> ReplayProcess::ReadLines() {
  char buffer[4096];
  while (messages_ >= 0) {
    const ssize_t size = read(messages_, buffer, sizeof(buffer));
    if (size < 0 && errno == EINTR) continue;
    if (size == 0) {  // all writers are gone
      close(messages_);
      messages_ = -1;
    }
    if (size <= 0) break;
    partial_line_.append(buffer, static_cast<size_t>(size));
  }
  std::vector<std::string> lines = absl::StrSplit(partial_line_, '\n');
  partial_line_ = lines.back();
  lines.pop_back();
  return lines;
}

bool ReplayProcess::Reap(int* status) {
  if (!is_running_ || waitpid(pid_, status, WNOHANG) != pid_) return false;
  is_running_ = false;
  return true;
}

void ReplayProcess::Signal(int signal) const {
  if (is_running_) kill(pid_, signal);
}

std::string ReplayProcess::DescribeEnd(int status, bool was_stopped, int* exit) const {
  if (WIFEXITED(status) && WEXITSTATUS(status) == kReplayDone) return "";
  if (WIFEXITED(status) && WEXITSTATUS(status) == kReplayInterrupted && was_stopped) return "";
  if (!error_.empty()) {
    *exit = WEXITSTATUS(status);
    return error_;
  }
  *exit = kReplayCrashed;
  const int signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  if (was_stopped && signal == SIGTERM) return "";
  if (was_stopped && signal == SIGKILL) {
    return absl::StrFormat("%s (pid %d) did not stop within %d s and was killed", file_, pid_,
                           kStopPatienceS);
  }
  if (signal != 0) {
    return absl::StrFormat("%s (pid %d) was killed by signal %d (%s)%s", file_, pid_, signal,
                           sigdescr_np(signal), WCOREDUMP(status) ? ", core dumped" : "");
  }
  return absl::StrFormat("%s (pid %d) ended by itself with status %d", file_, pid_,
                         WEXITSTATUS(status));
}

}  // namespace nccl_pulse
