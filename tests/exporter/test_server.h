// A server on a free port of the loopback interface, and what its tests share.
#ifndef TESTS_EXPORTER_TEST_SERVER_H_
#define TESTS_EXPORTER_TEST_SERVER_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "exporter/server.h"
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

inline std::unique_ptr<Server> StartServer(std::function<SnapshotSet()> source) {
  ServerOptions options;
  options.source = std::move(source);
  return StartServer(std::move(options));
}

inline double SecondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// With a sanitizer: within ten. Making a page takes that much longer, and the promise is not about
// it.
inline void ExpectAnswerWithinASecond(uint16_t port, const char* path = "/metrics") {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  constexpr double kSeconds = 10;
#else
  constexpr double kSeconds = 1;
#endif
  const auto start = std::chrono::steady_clock::now();
  const Response response = Get(port, path);
  EXPECT_EQ(response.status, 200);
  EXPECT_LT(SecondsSince(start), kSeconds);
}

}  // namespace nccl_pulse

#endif  // TESTS_EXPORTER_TEST_SERVER_H_
