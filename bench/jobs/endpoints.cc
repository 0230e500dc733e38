// Serves many endpoints of a hung simulated job from one process. Answers are prepared in advance,
// so that only the client is measured.
//
//   endpoints --nodes=2000 --targets=/tmp/targets.json
//
// Writes the addresses in file_sd format, prints "ready", and serves the requests of `pulse
// diagnose` and `pulse watch` until standard input ends.
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/jobs/job_layout.h"
#include "bench/jobs/job_run.h"
#include "exporter/base/gzip.h"
#include "exporter/cli/flags/flags.h"
#include "exporter/diagnosis/diagnosis.h"
#include "exporter/exposition/json/summary_json.h"
#include "exporter/exposition/snapshot_message.h"

namespace nccl_pulse {
namespace {

constexpr int64_t kMs = 1000000;

double CpuSeconds() {
  timespec used{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) + static_cast<double>(used.tv_nsec) / 1e9;
}

struct Answer {
  std::string snapshots, summary;
};

std::vector<Answer> Answers(int node_count, bool is_hung) {
  JobLayout layout;
  layout.tensor = 8;
  layout.data = node_count;
  layout.slowdown = 8;
  const std::vector<JobGroup> groups = GroupsOf(layout, 1);
  JobRunOptions options;
  options.fault = is_hung ? Fault::kHostStuck : Fault::kNone;
  options.rank = layout.ranks() / 3;
  options.fault_ns = 2000 * kMs;
  options.asked_ns = is_hung ? 40000 * kMs : 4000 * kMs;
  std::vector<Answer> answers;
  const std::vector<NodeSnapshot> nodes = RunJob(layout, groups, options);
  std::size_t bytes = 0;
  std::size_t most_summary_bytes = 0;
  double write_seconds = 0;
  double pack_seconds = 0;
  for (const NodeSnapshot& node : nodes) {
    const double start = CpuSeconds();
    const std::string page = WriteSnapshots(node.set, node.asked_realtime_ns, 10'000'000'000);
    const double written = CpuSeconds();
    const std::string body = Gzip(page).value();
    write_seconds += written - start;
    pack_seconds += CpuSeconds() - written;
    bytes += page.size();
    const std::string summary = SummaryJson(
        node.set, Diagnosis().Update(node.set, node.asked_realtime_ns), node.asked_realtime_ns);
    answers.push_back(
        {absl::StrCat("HTTP/1.0 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: ", body.size(),
                      "\r\n\r\n", body),
         absl::StrCat("HTTP/1.0 200 OK\r\nContent-Length: ", summary.size(), "\r\n\r\n", summary)});
    most_summary_bytes = std::max(most_summary_bytes, summary.size());
  }
  const auto count = static_cast<double>(answers.size());
  std::fprintf(stderr,
               "%d ranks; a page: %.0f bytes, %zu compressed; %.2f ms to write, %.2f to compress; "
               "a summary: at most %zu bytes\n",
               layout.ranks(), static_cast<double>(bytes) / count, answers.front().snapshots.size(),
               write_seconds / count * 1e3, pack_seconds / count * 1e3, most_summary_bytes);
  return answers;
}

int Listen(uint16_t* port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  if (fd < 0 || bind(fd, reinterpret_cast<sockaddr*>(&address), size) != 0 || listen(fd, 16) != 0 ||
      getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    return -1;
  }
  *port = ntohs(address.sin_port);
  return fd;
}

void Watch(int epoll, int fd) {
  epoll_event event = {};
  event.events = EPOLLIN;
  event.data.fd = fd;
  epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
}

int Main(const std::vector<std::string_view>& words) {
  int node_count = 2000;                      // endpoints, of 8 ranks each
  std::string targets = "/tmp/targets.json";  // receives their addresses
  bool is_hung = true;                        // one rank stops
  std::vector<std::string> rest;
  const std::string problem = ReadFlags(
      "endpoints", {{"--nodes", &node_count}, {"--targets", &targets}, {"--hang", &is_hung}}, words,
      &rest);
  if (!problem.empty()) {
    std::fprintf(stderr, "%s\n", problem.c_str());
    return 1;
  }
  rlimit limit = {};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
  const std::vector<Answer> answers = Answers(node_count, is_hung);
  const int epoll = epoll_create1(EPOLL_CLOEXEC);
  std::unordered_map<int, const Answer*> listeners;
  std::unordered_map<int, const Answer*> clients;
  std::string list = "[{\"targets\": [";
  for (const Answer& answer : answers) {
    uint16_t port = 0;
    const int fd = Listen(&port);
    if (fd < 0) {
      std::perror("endpoints");
      return 1;
    }
    absl::StrAppend(&list, listeners.empty() ? "" : ", ", "\"127.0.0.1:", port, "\"");
    listeners[fd] = &answer;
    Watch(epoll, fd);
  }
  std::ofstream(targets) << list << "]}]\n";
  std::printf("ready\n");
  std::fflush(stdout);
  Watch(epoll, STDIN_FILENO);
  while (true) {
    std::array<epoll_event, 256> events;
    const int count = epoll_wait(epoll, events.data(), static_cast<int>(events.size()), -1);
    for (int i = 0; i < count; ++i) {
      const int fd = events[i].data.fd;
      std::array<char, 4096> buffer;
      if (fd == STDIN_FILENO) {
        if (read(fd, buffer.data(), buffer.size()) <= 0) return 0;
      } else if (const auto found = listeners.find(fd); found != listeners.end()) {
        const int client = accept4(fd, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (client < 0) continue;
        clients[client] = found->second;
        Watch(epoll, client);
      } else {
        // A page fits into the socket's buffer.
        const ssize_t got = recv(fd, buffer.data(), buffer.size(), 0);
        if (got > 0) {
          const std::string_view request(buffer.data(), static_cast<std::size_t>(got));
          const bool wants_summary = request.find("/summary ") != request.npos;
          const std::string& answer = wants_summary ? clients[fd]->summary : clients[fd]->snapshots;
          [[maybe_unused]] const ssize_t sent =
              send(fd, answer.data(), answer.size(), MSG_NOSIGNAL);
        }
        clients.erase(fd);
        close(fd);
      }
    }
  }
}

}  // namespace
}  // namespace nccl_pulse

int main(int argc, char** argv) { return nccl_pulse::Main({argv + 1, argv + argc}); }
