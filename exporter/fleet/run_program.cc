#include "exporter/fleet/run_program.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "exporter/base/error_text.h"
#include "exporter/base/patient_thread.h"

extern char** environ;  // NOLINT(readability-redundant-declaration)

namespace nccl_pulse {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr std::size_t kMostBytes = 4 << 20;
constexpr milliseconds kPatienceWithEnd{1000};
constexpr milliseconds kEndCheckPeriod{20};

int Spawn(const std::vector<std::string>& arguments, int input, int output, pid_t* child) {
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_adddup2(&files, input, STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&files, output, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&files, output, STDERR_FILENO);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes,
                           POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
  posix_spawnattr_setpgroup(&attributes, 0);
  // The child would inherit the signals that this process ignores or blocks. Without SIGPIPE, a
  // program that writes into a pipe which nobody reads would never end.
  sigset_t signals;
  sigemptyset(&signals);
  posix_spawnattr_setsigmask(&attributes, &signals);
  sigaddset(&signals, SIGPIPE);
  sigaddset(&signals, SIGXFSZ);
  sigaddset(&signals, SIGCHLD);  // ignored, its own children would leave no status
  posix_spawnattr_setsigdefault(&attributes, &signals);
  std::vector<char*> argv;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  const int result = posix_spawnp(child, argv[0], &files, &attributes, argv.data(), environ);
  posix_spawn_file_actions_destroy(&files);
  posix_spawnattr_destroy(&attributes);
  return result;
}

void EndGroup(pid_t child, int* status) {
  kill(-child, SIGKILL);
  waitpid(child, status, 0);
}

// A start of a program. It may block forever: exec waits for the program's file system, and
// posix_spawn waits for exec. Shared by the starting thread and the caller, who stops waiting at
// the time limit.
struct Start {
  ~Start() { CloseEnds(); }

  void CloseEnds() {
    for (int* end : {&input, &output}) {
      if (*end >= 0) close(std::exchange(*end, -1));
    }
  }

  const std::vector<std::string> arguments;
  const Spawner spawn;
  int input, output;

  // Set by the first of both: the thread once the program has started, the caller at the limit.
  std::atomic<bool> is_settled{false};
  int failure = 0;
  pid_t child = 0;
};

// Starts the program. Returns false if it has not started by `end`; if it starts later, it is ended
// at once.
bool StartProgram(const std::vector<std::string>& arguments, Spawner spawn, int input, int output,
                  steady_clock::time_point end, int* failure, pid_t* child) {
  const std::shared_ptr<Start> start(new Start{arguments, spawn, input, output});
  const auto left = std::chrono::duration_cast<milliseconds>(end - steady_clock::now());
  const int late = RunWithin(left, [start] {
    start->failure = start->spawn(start->arguments, start->input, start->output, &start->child);
    int status = 0;
    if (start->is_settled.exchange(true) && start->failure == 0) EndGroup(start->child, &status);
  });
  if (late == ETIMEDOUT && !start->is_settled.exchange(true)) return false;
  *failure = late == EAGAIN ? EAGAIN : start->failure;
  *child = start->child;
  // Its output ends with the program, not with this thread.
  start->CloseEnds();
  return true;
}

// Returns a file in memory with this text; -1 without memory. A pipe would block if the program
// does not read.
int FileOf(std::string_view text) {
  const int fd = memfd_create("input", MFD_CLOEXEC);
  while (fd >= 0 && !text.empty()) {
    const ssize_t n = write(fd, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      close(fd);
      return -1;
    }
    text.remove_prefix(n);
  }
  if (fd >= 0) lseek(fd, 0, SEEK_SET);
  return fd;
}

// Appends the available output, up to one buffer. Returns false at the end of the output.
bool ReadSome(int fd, std::string* text) {
  char buffer[65536];
  const ssize_t n = read(fd, buffer, sizeof(buffer));
  if (n < 0) return errno == EINTR || errno == EAGAIN;
  text->append(buffer, std::min<std::size_t>(n, kMostBytes - std::min(kMostBytes, text->size())));
  return n > 0;
}

// Reads the output until the program ends: a child that it leaves behind may keep the output open.
// Returns waitpid's result; 0 if the time limit came first.
pid_t ReadUntilEnd(pid_t child, int fd, steady_clock::time_point end, std::string* text,
                   int* status) {
  fcntl(fd, F_SETFL, O_NONBLOCK);
  bool is_open = true;
  while (steady_clock::now() < end) {
    const pid_t ended = waitpid(child, status, WNOHANG);
    if (ended != 0) {
      // All remaining output is in the pipe, which holds at most one buffer.
      if (is_open) ReadSome(fd, text);
      return ended;
    }
    pollfd polled{is_open ? fd : -1, POLLIN, 0};
    if (poll(&polled, 1, static_cast<int>(kEndCheckPeriod.count())) > 0) {
      is_open = ReadSome(fd, text);
    }
  }
  return 0;
}

}  // namespace

void ReapOrphans() {
  siginfo_t info{};
  while (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid != 0) {
    // Spawn makes a group of each program, and no session. RunProgram waits for these itself.
    const bool is_own_program =
        getpgid(info.si_pid) == info.si_pid && getsid(info.si_pid) == getsid(0);
    if (is_own_program) return;
    waitpid(info.si_pid, nullptr, WNOHANG);
    info = {};
  }
}

ProgramOutput RunProgram(const std::vector<std::string>& arguments, milliseconds patience,
                         std::string_view input) {
  return RunProgram(arguments, patience, input, &Spawn);
}

ProgramOutput RunProgram(const std::vector<std::string>& arguments, milliseconds patience,
                         std::string_view input, Spawner spawn) {
  ProgramOutput output;
  const int input_file = FileOf(input);
  int ends[2];
  if (input_file < 0 || pipe2(ends, O_CLOEXEC) != 0) {
    output.error = ErrorText(errno);
    if (input_file >= 0) close(input_file);
    return output;
  }
  const auto end = steady_clock::now() + patience;
  pid_t child = 0;
  int failure = 0;
  if (!StartProgram(arguments, spawn, input_file, ends[1], end, &failure, &child)) {
    close(ends[0]);
    output.error = absl::StrCat(arguments[0], ": it could not be started within ", patience.count(),
                                " ms; does its file system answer?");
    return output;
  }
  if (failure != 0) {
    close(ends[0]);
    output.error = absl::StrCat(arguments[0], ": ", ErrorText(failure));
    return output;
  }
  int status = 0;
  pid_t ended = ReadUntilEnd(child, ends[0], end, &output.text, &status);
  close(ends[0]);
  const bool is_in_time = ended != 0;
  if (!is_in_time) {
    kill(-child, SIGKILL);
    // A program that waits in a driver (state D), or of another user (sudo), survives the signal.
    const auto given_up = steady_clock::now() + kPatienceWithEnd;
    while ((ended = waitpid(child, &status, WNOHANG)) == 0 && steady_clock::now() < given_up) {
      usleep(2000);
    }
  }
  if (ended == 0) {
    output.error = absl::StrCat("it did not end within ", patience.count(),
                                " ms, could not be ended, and runs on as pid ", child);
    return output;
  }
  if (ended < 0) {
    output.error = "its exit status is not known: this process ignores SIGCHLD";
  } else if (!is_in_time) {
    output.error = absl::StrCat("it was ended after ", patience.count(), " ms");
  } else if (WIFSIGNALED(status)) {
    output.error = absl::StrCat("it was ended by signal ", WTERMSIG(status));
  } else if (WEXITSTATUS(status) != 0) {
    output.error = absl::StrCat("it ended with status ", WEXITSTATUS(status));
  }
  return output;
}

}  // namespace nccl_pulse
