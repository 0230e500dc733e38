// A server on a free port of the loopback interface, and what its tests share.
#ifndef TESTS_EXPORTER_TEST_SERVER_H_
#define TESTS_EXPORTER_TEST_SERVER_H_

#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "exporter/endpoint/server.h"
#include "gtest/gtest.h"
#include "tests/exporter/example_snapshots.h"
#include "tests/exporter/http_client.h"

namespace nccl_pulse {

inline constexpr char kScrape[] = "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";

inline SnapshotSet Example() { return SnapshotSet({ExampleProcess()}); }

// A page of about 12 MB: no socket buffer takes all of it. One long name on the lines of one
// histogram, so that making it costs little.
inline SnapshotSet Large() {
  ProcessSnapshot process = ExampleProcess();
  process.communicators[0].latencies[0].op = std::string(500'000, 'x');
  return SnapshotSet({process});
}

inline std::unique_ptr<Server> StartServer(ServerOptions options) {
  if (options.listen_address == ":9410") options.listen_address = "127.0.0.1:0";
  // These tests ask far more than a job's server would answer.
  if (options.cpu_share == kJobCpuShare) options.cpu_share = 4;
  std::string error;
  std::unique_ptr<Server> server = Server::Start(std::move(options), &error);
  EXPECT_NE(server, nullptr) << error;
  return server;
}

// A source that answers every wish with this.
inline std::function<SnapshotSet(const ReadWish&)> Always(std::function<SnapshotSet()> source) {
  return [source = std::move(source)](const ReadWish&) { return source(); };
}

inline std::unique_ptr<Server> StartServer(std::function<SnapshotSet()> source) {
  ServerOptions options;
  options.source = Always(std::move(source));
  return StartServer(std::move(options));
}

inline double SecondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// For how long this thread and the server's have waited for a processor so far; 0 where the kernel
// does not say.
inline double SecondsWithoutProcessor() {
  double seconds = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name;
    std::getline(std::ifstream(task.path() / "comm"), name);
    const bool is_own = task.path().filename() == std::to_string(gettid());
    if (!is_own && name != "pulse-http") continue;
    double ran_ns = 0;
    double waited_ns = 0;
    std::ifstream(task.path() / "schedstat") >> ran_ns >> waited_ns;
    seconds += waited_ns / 1e9;
  }
  return seconds;
}

// How long an answer takes, without the time in which the two had no processor: a busy machine is
// not the server's fault.
class AnswerTime {
 public:
  double Seconds() const {
    const double starved = SecondsWithoutProcessor() - starved_before_;
    return SecondsSince(start_) - starved;
  }

 private:
  const double starved_before_ = SecondsWithoutProcessor();
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// With a sanitizer making a page takes that much longer, and the promise is not about it.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
inline constexpr double kAnswerSeconds = 10;
#else
inline constexpr double kAnswerSeconds = 1;
#endif

inline void ExpectAnswerWithinASecond(uint16_t port, const char* path = "/metrics") {
  const AnswerTime time;
  EXPECT_EQ(Get(port, path).status, 200);
  EXPECT_LT(time.Seconds(), kAnswerSeconds);
}

}  // namespace nccl_pulse

#endif  // TESTS_EXPORTER_TEST_SERVER_H_
