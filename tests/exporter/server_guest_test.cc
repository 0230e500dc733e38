// The server as a guest in a process that is not its own: signals, threads, descriptors, forks.
#include <dirent.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <fstream>
#include <functional>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "exporter/endpoint/server.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/exporter/example_snapshots.h"
#include "tests/exporter/http_client.h"
#include "tests/exporter/test_server.h"
#include "tests/prelude/threads.h"

namespace nccl_pulse {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

std::set<int> OpenDescriptors() {
  std::set<int> descriptors;
  DIR* folder = opendir("/proc/self/fd");
  while (const dirent* entry = readdir(folder)) {
    const int fd = std::atoi(entry->d_name);
    if (entry->d_name[0] != '.' && fd != dirfd(folder)) descriptors.insert(fd);
  }
  closedir(folder);
  return descriptors;
}

// A line of /proc/self/task/*/status of the thread with this name; "" when there is none.
std::string ThreadStatus(const std::string& thread_name, const std::string& field) {
  std::string found;
  DIR* folder = opendir("/proc/self/task");
  while (const dirent* entry = readdir(folder)) {
    std::ifstream file(std::string("/proc/self/task/") + entry->d_name + "/status");
    std::string name;
    for (std::string line; std::getline(file, line);) {
      if (line.rfind("Name:\t", 0) == 0) name = line.substr(6);
      if (line.rfind(field + ":\t", 0) == 0 && name == thread_name) {
        found = line.substr(field.size() + 2);
      }
    }
  }
  closedir(folder);
  return found;
}

TEST(Server, ThreadBlocksAllSignalsAndTheCallersMaskIsUntouched) {
  sigset_t before;
  pthread_sigmask(SIG_SETMASK, nullptr, &before);
  const auto server = StartServer(Example);
  Get(server->port(), "/healthz");  // the thread has its name by now
  sigset_t after;
  pthread_sigmask(SIG_SETMASK, nullptr, &after);
  for (int signal = 1; signal < 32; ++signal) {
    EXPECT_EQ(sigismember(&before, signal), sigismember(&after, signal)) << signal;
  }
  const std::string blocked = ThreadStatus("pulse-http", "SigBlk");
  ASSERT_NE(blocked, "");
  const uint64_t mask = std::stoull(blocked, nullptr, 16);
  for (int signal = 1; signal <= 64; ++signal) {
    // 9 and 19 cannot be blocked; 32 and 33 are the C library's own.
    if (signal == SIGKILL || signal == SIGSTOP || signal == 32 || signal == 33) continue;
    EXPECT_TRUE(mask >> (signal - 1) & 1) << signal;
  }
}

TEST(Server, ClientsThatGoAwayRaiseNoSignal) {
  static std::atomic<int> signals;
  signals = 0;
  struct sigaction action {};
  struct sigaction before {};
  action.sa_handler = [](int) { ++signals; };
  sigaction(SIGPIPE, &action, &before);
  {
    const auto server = StartServer(Large);
    for (int i = 0; i < 50; ++i) {
      Client client(server->port());
      client.Send(kScrape);
      if (i % 2 == 0) {  // leave with a reset, in the middle of the page
        const linger now = {1, 0};
        setsockopt(client.fd(), SOL_SOCKET, SO_LINGER, &now, sizeof(now));
      }
    }
    ExpectAnswerWithinASecond(server->port(), "/healthz");
    EXPECT_EQ(std::stoull(ThreadStatus("pulse-http", "SigPnd"), nullptr, 16), 0u);
  }
  EXPECT_EQ(signals, 0);
  sigaction(SIGPIPE, &before, nullptr);
}

TEST(Server, StopEndsTheThreadAndClosesEverything) {
  const std::set<int> before = OpenDescriptors();
  auto server = StartServer(Example);
  const uint16_t port = server->port();
  std::vector<Client> clients;
  clients.reserve(10);
  for (int i = 0; i < 10; ++i) clients.emplace_back(port);
  for (Client& client : clients) client.Send("GET /metrics HTTP/1.1\r\n\r\n");
  for (Client& client : clients) client.ReadResponse();
  server->Stop();
  EXPECT_EQ(ThreadStatus("pulse-http", "State"), "");
  EXPECT_FALSE(Client(port).connected());
  server->Stop();  // again: nothing
  server.reset();
  clients.clear();
  EXPECT_EQ(OpenDescriptors(), before);
}

TEST(Server, StopLeavesAStuckSourceBehind) {
  // Shared with the thread, which outlives the test's frame.
  const auto release = std::make_shared<std::atomic<bool>>(false);
  const auto entered = std::make_shared<std::atomic<bool>>(false);
  auto server = StartServer([release, entered]() -> SnapshotSet {
    *entered = true;
    while (!*release) std::this_thread::sleep_for(milliseconds(1));
    return Example();
  });
  Client client(server->port());
  client.Send(kScrape);
  while (!*entered) std::this_thread::sleep_for(milliseconds(1));
  server->Stop();  // does not wait for it
  server.reset();
  *release = true;
  // The thread comes back, sees that it is to end, and cleans up after itself.
  while (!ThreadStatus("pulse-http", "State").empty()) std::this_thread::sleep_for(milliseconds(1));
}

TEST(Server, AllDescriptorsAreClosedOnExec) {
  const std::set<int> before = OpenDescriptors();
  const auto server = StartServer(Example);
  Client client(server->port());
  client.Send("GET / HTTP/1.1\r\n\r\n");
  client.ReadResponse();
  int checked = 0;
  for (int fd : OpenDescriptors()) {
    if (before.count(fd) != 0) continue;
    EXPECT_TRUE(fcntl(fd, F_GETFD) & FD_CLOEXEC) << fd;
    ++checked;
  }
  EXPECT_GE(checked, 5);  // listener, the two ends of a wake, the connection
}

// Runs `body` in a forked child; its exit status is what `body` returns.
int InChild(const std::function<int()>& body) {
  const pid_t child = fork();
  if (child == 0) _exit(body());
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(Server, ForkedChildAbandonsAndTheParentServesOn) {
  const std::set<int> before = OpenDescriptors();
  auto server = StartServer(Example);
  Client kept(server->port());
  kept.Send("GET /healthz HTTP/1.1\r\n\r\n");
  kept.ReadResponse();
  const int in_child = InChild([&] {
    Server::ResetAfterFork();
    // All but the test's own end of the connection is gone.
    std::set<int> expected = before;
    expected.insert(kept.fd());
    if (OpenDescriptors() != expected) return 1;
    (void)server.release();  // it is the parent's
#ifndef __SANITIZE_THREAD__  // refuses new threads after a fork
    // A server of its own, on a port of its own, while the parent's listens.
    const auto own = StartServer(Example);
    if (own == nullptr || Get(own->port(), "/metrics").status != 200) return 2;
    own->Stop();
#endif
    return 0;
  });
  EXPECT_EQ(in_child, 0);
  kept.Send("GET /healthz HTTP/1.1\r\n\r\n");
  EXPECT_EQ(ParseResponse(kept.ReadResponse()).status, 200);
  ExpectAnswerWithinASecond(server->port());
}

TEST(Server, ChildrenThatAbandonDoNotHoldThePort) {
  auto server = StartServer(Example);
  const uint16_t port = server->port();
  int to_child[2];
  int to_parent[2];
  ASSERT_EQ(pipe(to_child), 0);
  ASSERT_EQ(pipe(to_parent), 0);
  const pid_t child = fork();
  if (child == 0) {
    Server::ResetAfterFork();
    char byte = 0;
    // Ready; then live on until told.
    if (write(to_parent[1], &byte, 1) != 1 || read(to_child[0], &byte, 1) != 1) _exit(1);
    _exit(0);
  }
  char byte = 0;
  ASSERT_EQ(read(to_parent[0], &byte, 1), 1);
  server->Stop();
  EXPECT_FALSE(Client(port).connected());
  ASSERT_EQ(write(to_child[1], &byte, 1), 1);
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  for (int fd : {to_child[0], to_child[1], to_parent[0], to_parent[1]}) close(fd);
}

TEST(Server, ForkUnderLoad) {
  auto server = StartServer(Large);
  std::atomic<bool> done{false};
  Threads scrapers(4, [&](int i) {
    while (!done) Get(server->port(), i % 2 == 0 ? "/metrics" : "/healthz");
  });
  for (int i = 0; i < 50; ++i) {
    EXPECT_EQ(InChild([&] {
                Server::ResetAfterFork();
                return 0;
              }),
              0);
  }
  done = true;
  scrapers.Join();
  ExpectAnswerWithinASecond(server->port(), "/healthz");
}

TEST(Server, ProcessMayExitAtAnyMoment) {
  for (int i = 0; i < 30; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      auto* server = StartServer(Large).release();  // never stopped
      std::thread scraper([server] {
        while (true) Get(server->port(), "/metrics");
      });
      scraper.detach();
      std::this_thread::sleep_for(milliseconds(i * 3));
      std::exit(0);  // with static destructors
    }
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0) << i;
  }
}

// At the job's limit of descriptors no client can be taken: that is said once, and nothing spins.
TEST(Server, DescriptorLimitReached) {
  std::mutex mutex;
  std::vector<std::string> messages;
  ServerOptions options;
  options.source = Always(Example);
  options.log = [&](LogLevel, const std::string& message) {
    const std::lock_guard<std::mutex> lock(mutex);
    messages.push_back(message);
  };
  const auto server = StartServer(options);
  Client early(server->port());
  early.Send("GET /healthz HTTP/1.1\r\n\r\n");
  early.ReadResponse();
  Client late;
  std::ifstream cpu_time("/proc/self/task/" + ThreadStatus("pulse-http", "Pid") + "/schedstat");
  const auto cpu_seconds = [&cpu_time] {
    double ns = 0;
    cpu_time.clear();
    cpu_time.seekg(0);
    cpu_time >> ns;
    return ns / 1e9;
  };
  cpu_seconds();

  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const int next = dup(0);  // the number that the next descriptor would have
  close(next);
  rlimit low = before;
  low.rlim_cur = static_cast<rlim_t>(next);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  EXPECT_TRUE(late.Connect(server->port()));  // by the kernel
  late.Send(kScrape);
  const double cpu_before = cpu_seconds();
  std::this_thread::sleep_for(milliseconds(600));
  EXPECT_LT(cpu_seconds() - cpu_before, 0.1);
  early.Send("GET /healthz HTTP/1.1\r\n\r\n");
  EXPECT_EQ(ParseResponse(early.ReadResponse()).status, 200);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);

  EXPECT_EQ(ParseResponse(late.ReadAll(30)).status, 200);
  const std::lock_guard<std::mutex> lock(mutex);
  EXPECT_THAT(messages, testing::ElementsAre(HasSubstr("Too many open files")));
}

}  // namespace
}  // namespace nccl_pulse
