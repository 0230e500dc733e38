#include "exporter/fleet/run_program.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <system_error>

#include "absl/strings/str_cat.h"

extern char** environ;  // NOLINT(readability-redundant-declaration)

namespace nccl_pulse {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr std::size_t kMostBytes = 4 << 20;
constexpr milliseconds kPatienceWithEnd{1000};

std::string ErrorOf(int error) { return std::error_code(error, std::generic_category()).message(); }

// 0, or what posix_spawnp says.
int Spawn(const std::vector<std::string>& arguments, int output, pid_t* child) {
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&files, output, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&files, output, STDERR_FILENO);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  posix_spawnattr_setpgroup(&attributes, 0);
  std::vector<char*> argv;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  const int result = posix_spawnp(child, argv[0], &files, &attributes, argv.data(), environ);
  posix_spawn_file_actions_destroy(&files);
  posix_spawnattr_destroy(&attributes);
  return result;
}

// False: its time was over before it closed its output.
bool ReadAll(int fd, steady_clock::time_point end, std::string* text) {
  char buffer[65536];
  while (true) {
    const auto left = std::chrono::duration_cast<milliseconds>(end - steady_clock::now()).count();
    if (left <= 0) return false;
    pollfd polled{fd, POLLIN, 0};
    const int ready = poll(&polled, 1, static_cast<int>(std::min<int64_t>(left + 1, 1000)));
    if (ready <= 0) continue;
    const ssize_t n = read(fd, buffer, sizeof(buffer));
    if (n == 0 || (n < 0 && errno != EINTR)) return true;
    if (n > 0)
      text->append(buffer,
                   std::min<std::size_t>(n, kMostBytes - std::min(kMostBytes, text->size())));
  }
}

}  // namespace

ProgramOutput RunProgram(const std::vector<std::string>& arguments, milliseconds patience) {
  ProgramOutput output;
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    output.error = ErrorOf(errno);
    return output;
  }
  pid_t child = 0;
  const int failure = Spawn(arguments, ends[1], &child);
  close(ends[1]);
  if (failure != 0) {
    close(ends[0]);
    output.error = absl::StrCat(arguments[0], ": ", ErrorOf(failure));
    return output;
  }
  const auto end = steady_clock::now() + patience;
  bool is_in_time = ReadAll(ends[0], end, &output.text);
  close(ends[0]);
  int status = 0;
  pid_t ended = 0;
  while (is_in_time && (ended = waitpid(child, &status, WNOHANG)) == 0) {
    is_in_time = steady_clock::now() < end;
    usleep(2000);
  }
  if (ended != child) {
    kill(-child, SIGKILL);
    // One that a driver holds (state D), or of another user (sudo), does not end by that.
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
  if (!is_in_time) {
    output.error = absl::StrCat("it was ended after ", patience.count(), " ms");
  } else if (WIFSIGNALED(status)) {
    output.error = absl::StrCat("it was ended by signal ", WTERMSIG(status));
  } else if (WEXITSTATUS(status) != 0) {
    output.error = absl::StrCat("it ended with status ", WEXITSTATUS(status));
  }
  return output;
}

}  // namespace nccl_pulse
