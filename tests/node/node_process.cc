// A process with the real library in it that does as it is told, for the tests of the node's
// endpoint. One line on standard input, one answer on standard output:
//
//   init [ID]       makes a communicator              -> where the log says the metrics are
//   run N           N operations on it                -> ok
//   finalize        ends the communicator             -> ok
//   open                                             -> what it has open of ours
//   fork            a child that lives on, no exec    -> its pid and what it has open of ours
//   fork_init       a child that uses NCCL itself     -> its pid and where its metrics are
//   spawn           a child that is another program   -> its pid
//   clock SECONDS   sets the wall clock, as it sees it -> ok
//   no_unix         may make no such sockets any more -> ok
//   close N         closes this number                -> ok
//   close_from N    closes this number and all after  -> ok
//   put N FILE      a file of the job's own there     -> ok
//   event N         an eventfd of the job's own there -> ok
//   print N COUNT   writes there so often             -> how often that did not fail
//   clone           a child that no handler knows of  -> its pid
//   busy HOW        ends so amid callbacks, see ways_to_end.h -> with "stay": ok
//   exec            becomes this program anew
//   exit / _exit    ends, in order or at once
//
// The communicator's rank is the first argument, and so is RANK.
#include <dirent.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>

#include "tests/node/ways_to_end.h"
#include "tests/plugin/harness.h"

namespace {
std::atomic<long> g_step_s{0};
}  // namespace

// The wall clock as if an administrator, or a time daemon, had set it: libraries find this one first.
extern "C" __attribute__((visibility("default"))) int clock_gettime(clockid_t clock,
                                                                    timespec* time) noexcept {
  const auto result = static_cast<int>(syscall(SYS_clock_gettime, clock, time));
  if (clock == CLOCK_REALTIME && result == 0) {
    time->tv_sec += g_step_s.load(std::memory_order_relaxed);
  }
  return result;
}

namespace nccl_pulse {
namespace {

constexpr uint64_t kCommId = 0xc0ffee;

// Sockets, and memory of any segment, mapped or not.
std::string WhatIsOpen() {
  std::string open;
  DIR* folder = opendir("/proc/self/fd");
  while (const dirent* entry = readdir(folder)) {
    char target[PATH_MAX] = {};
    const std::string link = std::string("/proc/self/fd/") + entry->d_name;
    if (readlink(link.c_str(), target, sizeof(target) - 1) <= 0) continue;
    const std::string what = target;
    if (what.rfind("socket:", 0) == 0 || what.find("nccl-pulse") != what.npos) {
      open += " " + what;
    }
  }
  closedir(folder);
  FILE* maps = fopen("/proc/self/maps", "r");
  char line[PATH_MAX];
  while (fgets(line, sizeof(line), maps) != nullptr) {
    if (std::string(line).find("memfd:nccl-pulse") != std::string::npos) open += " mapped";
  }
  fclose(maps);
  return open;
}

// What the parent may have from its own parent is no business of this test.
void Fork() {
  int answer[2];
  if (pipe(answer) != 0) abort();
  const pid_t child = fork();
  if (child == 0) {
    const std::string open = WhatIsOpen();
    if (write(answer[1], open.data(), open.size()) < 0) _exit(1);
    close(answer[1]);
    while (getppid() != 1) sleep(1);  // until the parent, and the test, are gone
    _exit(0);
  }
  close(answer[1]);
  std::string open;
  char buffer[4096];
  for (ssize_t size; (size = read(answer[0], buffer, sizeof(buffer))) > 0;)
    open.append(buffer, size);
  close(answer[0]);
  std::cout << child << open << std::endl;
}

std::string WhereMetricsAre() {
  std::string where = "nowhere";
  for (const std::string& line : TakeLog()) {
    std::cerr << line << "\n";
    const size_t at = std::min(line.find("http://"), line.find("unix:"));
    if (at != line.npos) where = line.substr(at);
  }
  return where;
}

// What the parent has measured is no business of the child: it starts afresh, as rank + 100.
void ForkAndInit(int rank) {
  if (fork() != 0) return;
  NcclCommunicator communicator(kCommId, rank + 100, 64);
  communicator.RunWithProxy();
  std::cout << getpid() << " " << WhereMetricsAre() << std::endl;
  while (getppid() != 1) sleep(1);
  _exit(0);
}

// posix_spawn shares the memory until the other program starts, and runs no fork handlers.
pid_t Spawn() {
  pid_t child = 0;
  std::string program = "sleep";
  std::string time = "1000";
  char* const arguments[] = {program.data(), time.data(), nullptr};
  if (posix_spawnp(&child, "sleep", nullptr, nullptr, arguments, environ) != 0) abort();
  return child;
}

// By the system call alone, as a crash reporter makes it: a copy that has everything open.
pid_t Clone() {
  const auto child = static_cast<pid_t>(syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0));
  if (child == 0) {
    while (true) pause();
  }
  return child;
}

void MoveTo(int number, int fd) {
  if (fd < 0 || dup2(fd, number) != number) abort();
  if (fd != number) close(fd);
}

int Print(int number, int count) {
  int printed = 0;
  for (int i = 0; i < count; ++i) printed += write(number, "step\n", 5) >= 0 ? 1 : 0;
  return printed;
}

bool RefuseUnixSockets() {
  return RefuseSystemCalls({{SYS_socket, EACCES, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC}});
}

int Main(int argc, char** argv) {
  const int rank = argc > 1 ? atoi(argv[1]) : 0;
  setenv("RANK", std::to_string(rank).c_str(), 1);
  std::unique_ptr<NcclCommunicator> communicator;
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::string command;
    words >> command;
    if (command == "init") {
      uint64_t comm_id = kCommId;
      words >> std::hex >> comm_id;
      communicator = std::make_unique<NcclCommunicator>(comm_id, rank, 64);
      std::cout << WhereMetricsAre() << std::endl;
    } else if (command == "run") {
      int count = 0;
      words >> count;
      for (int i = 0; i < count; ++i) communicator->RunWithProxy();
      std::cout << "ok" << std::endl;
    } else if (command == "finalize") {
      communicator->Finalize();
      std::cout << "ok" << std::endl;
    } else if (command == "open") {
      std::cout << WhatIsOpen() << std::endl;
    } else if (command == "fork") {
      Fork();
    } else if (command == "fork_init") {
      ForkAndInit(rank);
    } else if (command == "spawn") {
      std::cout << Spawn() << std::endl;
    } else if (command == "clock") {
      long seconds = 0;
      words >> seconds;
      g_step_s.store(seconds, std::memory_order_relaxed);
      std::cout << "ok" << std::endl;
    } else if (command == "no_unix") {
      std::cout << (RefuseUnixSockets() ? "ok" : "no filters") << std::endl;
    } else if (command == "close" || command == "close_from") {
      int number = 0;
      words >> number;
      if (command == "close") close(number);
      if (command == "close_from") close_range(number, ~0U, 0);
      std::cout << "ok" << std::endl;
    } else if (command == "put") {
      int number = 0;
      std::string file;
      words >> number >> file;
      MoveTo(number, open(file.c_str(), O_RDWR | O_CREAT, 0644));
      std::cout << "ok" << std::endl;
    } else if (command == "event") {
      int number = 0;
      words >> number;
      MoveTo(number, eventfd(7, EFD_SEMAPHORE));
      std::cout << "ok" << std::endl;
    } else if (command == "print") {
      int number = 0;
      int count = 0;
      words >> number >> count;
      std::cout << Print(number, count) << std::endl;
    } else if (command == "clone") {
      std::cout << Clone() << std::endl;
    } else if (command == "busy") {
      std::string how;
      words >> how;
      BeBusyThen(how);
      std::cout << "ok" << std::endl;
    } else if (command == "exec") {
      Exec();
    } else if (command == "exit") {
      return 0;
    } else if (command == "_exit") {
      _exit(0);
    }
  }
  return 0;
}

}  // namespace
}  // namespace nccl_pulse

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  return nccl_pulse::Main(argc, argv);
}
