#include "bench/collective_overhead/group.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <ctime>
#include <numeric>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace nccl_pulse::overhead {
namespace {

// Between fork and exec: only calls that are safe after a fork.
[[noreturn]] void BecomeWorker(pid_t parent, const std::vector<int>& sockets,
                               const std::vector<char*>& arguments,
                               const std::vector<char*>& environment) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);
  // Ctrl-C and `timeout` signal the whole process group. The coordinator decides what happens then.
  signal(SIGINT, SIG_IGN);
  signal(SIGTERM, SIG_IGN);
  for (const int socket : sockets) fcntl(socket, F_SETFD, 0);
  // Standard output is for the coordinator's table, and NCCL would log there.
  dup2(STDERR_FILENO, STDOUT_FILENO);
  execve("/proc/self/exe", arguments.data(), environment.data());
  _exit(127);
}

std::vector<char*> Pointers(const std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  pointers.reserve(strings.size() + 1);
  for (const std::string& string : strings) pointers.push_back(const_cast<char*>(string.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace

namespace {
volatile sig_atomic_t stop_requested = 0;
void RequestStop(int /*signal*/) { stop_requested = 1; }
}  // namespace

void StopOnSignals() {
  struct sigaction action = {};  // without SA_RESTART, so that waits end early
  action.sa_handler = RequestStop;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

bool StopRequested() { return stop_requested != 0; }

double NowSeconds() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

Error Group::Spawn() {
  const std::size_t nranks = options_.devices.size();
  const std::size_t per_process = launch_ == Launch::kThreads ? nranks : 1;
  std::vector<int> devices = options_.devices;
  std::sort(devices.begin(), devices.end());
  const bool shared_devices = std::adjacent_find(devices.begin(), devices.end()) != devices.end();

  for (std::size_t first = 0; first < nranks; first += per_process) {
    std::vector<int> theirs;
    std::vector<std::string> arguments = {"collective_overhead", "--worker", options_.nccl,
                                          absl::StrCat(nranks)};
    for (std::size_t rank = first; rank < first + per_process; ++rank) {
      int ends[2];
      if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
        return absl::StrCat("socketpair: ", std::generic_category().message(errno));
      }
      sockets_.push_back(ends[0]);
      theirs.push_back(ends[1]);
      arguments.push_back(absl::StrCat(rank, ":", options_.devices[rank], ":", ends[1]));
    }

    std::vector<std::string> environment;
    const auto is_set = [&](const std::string& variable) {
      const std::string name = variable.substr(0, variable.find('='));
      return name == "NCCL_PROFILER_PLUGIN" ||
             std::any_of(configuration_.environment.begin(), configuration_.environment.end(),
                         [&](const auto& ours) { return ours.first == name; });
    };
    for (char** variable = environ; *variable != nullptr; ++variable) {
      if (!is_set(*variable)) environment.emplace_back(*variable);
    }
    // Set even without a plugin: if the variable is missing, NCCL searches a plugin by a default
    // name.
    environment.push_back("NCCL_PROFILER_PLUGIN=" + configuration_.plugin);
    for (const auto& [name, value] : configuration_.environment) {
      environment.push_back(absl::StrCat(name, "=", value));
    }
    if (shared_devices) environment.push_back(absl::StrCat("NCCL_HOSTID=overhead", first));

    const std::vector<char*> argument_pointers = Pointers(arguments);
    const std::vector<char*> environment_pointers = Pointers(environment);
    const pid_t parent = getpid();
    const pid_t child = fork();
    if (child == 0) BecomeWorker(parent, theirs, argument_pointers, environment_pointers);
    for (const int socket : theirs) close(socket);
    if (child < 0) return absl::StrCat("fork: ", std::generic_category().message(errno));
    processes_.push_back(child);
  }
  return {};
}

Error Group::SendTo(std::size_t rank, const Request& request) {
  if (send(sockets_[rank], &request, sizeof(request), MSG_NOSIGNAL) >= 0) return {};
  return absl::StrCat("rank ", rank, " is gone: ", std::generic_category().message(errno));
}

Error Group::ReceiveFrom(std::size_t rank, Reply* reply) {
  ssize_t size = -1;
  do {
    size = recv(sockets_[rank], reply, sizeof(*reply), 0);
  } while (size < 0 && errno == EINTR);
  if (size != static_cast<ssize_t>(sizeof(*reply))) return absl::StrCat("rank ", rank, " ended");
  return reply->ok ? Error() : Error(reply->text);
}

Error Group::ReceiveOf(std::vector<std::size_t> ranks, std::vector<Reply>* replies) {
  constexpr double kGraceSeconds = 5;  // after a request to stop
  const double begin = NowSeconds();
  double deadline = begin + options_.hang_seconds;
  while (!ranks.empty()) {
    if (StopRequested()) deadline = std::min(deadline, NowSeconds() + kGraceSeconds);
    const double left_ms = (deadline - NowSeconds()) * 1000;
    if (left_ms <= 0) {
      return absl::StrCat("no answer for ", static_cast<int>(NowSeconds() - begin), " s from rank ",
                          absl::StrJoin(ranks, ", "));
    }
    std::vector<pollfd> wanted;
    wanted.reserve(ranks.size());
    for (const std::size_t rank : ranks) wanted.push_back({sockets_[rank], POLLIN, 0});
    const int ready = poll(wanted.data(), wanted.size(), static_cast<int>(left_ms) + 1);
    if (ready < 0 && errno != EINTR)
      return absl::StrCat("poll: ", std::generic_category().message(errno));
    if (ready <= 0) continue;
    std::vector<std::size_t> waiting;
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      if (wanted[i].revents == 0) {
        waiting.push_back(ranks[i]);
        continue;
      }
      // The first failure names the cause; the others may wait for it forever.
      Error error = ReceiveFrom(ranks[i], &(*replies)[ranks[i]]);
      if (!error.empty()) return error;
    }
    ranks = waiting;
  }
  return {};
}

Error Group::Send(const Request& request) {
  Error first;
  for (std::size_t rank = 0; rank < sockets_.size(); ++rank) {
    const Error error = SendTo(rank, request);
    if (first.empty()) first = error;
  }
  return first;
}

Error Group::Receive(std::vector<Reply>* replies) {
  replies->assign(sockets_.size(), Reply{});
  std::vector<std::size_t> ranks(sockets_.size());
  std::iota(ranks.begin(), ranks.end(), std::size_t{0});
  return ReceiveOf(ranks, replies);
}

Error Group::Call(const Request& request, std::vector<Reply>* replies) {
  Error error = Send(request);
  return error.empty() ? Receive(replies) : error;
}

Error Group::SendUniqueIdAndConnect() {
  Request request{};
  request.kind = RequestKind::kUniqueId;
  Error error = SendTo(0, request);
  std::vector<Reply> replies(1);
  if (error.empty()) error = ReceiveOf({0}, &replies);
  if (!error.empty()) return error;
  request.kind = RequestKind::kConnect;
  request.unique_id = replies[0].unique_id;
  snprintf(request.plugin, sizeof(request.plugin), "%s", configuration_.plugin.c_str());
  return Send(request);
}

void Group::AskToQuit() {
  Request request{};
  request.kind = RequestKind::kQuit;
  Send(request);
}

void Group::AwaitQuit(double seconds) {
  Reap(seconds);
  Kill();
}

void Group::Kill() {
  for (const pid_t process : processes_) kill(process, SIGKILL);
  for (const pid_t process : processes_) waitpid(process, nullptr, 0);
  processes_.clear();
  for (const int socket : sockets_) close(socket);
  sockets_.clear();
}

void Group::Reap(double seconds) {
  const double deadline_seconds = NowSeconds() + seconds;
  while (!processes_.empty() && NowSeconds() < deadline_seconds) {
    processes_.erase(
        std::remove_if(processes_.begin(), processes_.end(),
                       [](pid_t process) { return waitpid(process, nullptr, WNOHANG) == process; }),
        processes_.end());
    if (!processes_.empty()) usleep(1000);
  }
}

}  // namespace nccl_pulse::overhead
