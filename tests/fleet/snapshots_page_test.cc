// /api/v1/snapshots of a real server.
#include <atomic>
#include <chrono>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "exporter/exposition/snapshot_message.h"
#include "exporter/http/page_cache.h"
#include "gtest/gtest.h"
#include "tests/exporter/test_server.h"

namespace nccl_pulse {
namespace {

TEST(SnapshotsPage, IsWhatTheServerKnows) {
  ServerOptions options;
  options.source = Always(Example);
  options.hang_after = [] { return std::chrono::seconds(17); };
  const auto server = StartServer(std::move(options));
  const Response response = Get(server->port(), "/api/v1/snapshots");
  EXPECT_EQ(response.status, 200);
  EXPECT_NE(response.head.find("application/x-protobuf"), std::string::npos);
  SnapshotMessage message;
  std::string error;
  ASSERT_TRUE(ReadSnapshots(response.body, {}, 1 << 20, &message, &error)) << error;
  EXPECT_EQ(message.hang_after_ns, 17000000000);
  ASSERT_EQ(message.set.processes.size(), 1u);
  EXPECT_EQ(message.set.processes[0].pid, 4711);
  // As the other pages: when the answer was made is said by the endpoint's own clock.
  EXPECT_GT(message.written_realtime_ns, message.set.processes[0].last_poll_realtime_ns);
}

// Whatever pages are asked for: each tells how far the processes have come.
TEST(SnapshotsPage, TellsOfAProcessThatBecameSlower) {
  ServerOptions options;
  SnapshotSet set = Example();
  ProcessSnapshot& process = set.processes[0];
  process.sampling_exponent = 0;
  process.communicators.resize(1);
  CommunicatorSnapshot& communicator = process.communicators[0];
  communicator.captured = false;
  communicator.calls = {{"AllReduce", 4, "", false, 0, 0}};
  communicator.latencies.resize(1);
  LatencySnapshot& latency = communicator.latencies[0];
  latency = LatencySnapshot();
  latency.kind = LatencyKind::kDurationStream;
  latency.op = "AllReduce";
  latency.size_class = 4;
  int64_t now = 1760000000000000000;
  std::atomic<int> pages = 0;
  options.source = [&](const ReadWish&) {
    const uint64_t steps = ++pages <= 8 ? 40 : 30;  // in 20 seconds
    now += 20'000'000'000;
    communicator.calls[0].calls += steps;
    latency.histogram.cells[0] += steps;
    latency.histogram.sum_ns += steps * 100'000'000;
    return set;
  };
  options.pace_clock = [&now] { return now; };
  const auto server = StartServer(std::move(options));
  SnapshotMessage message;
  while (pages < 14) {
    Get(server->port(), "/metrics");
    Get(server->port(), "/api/v1/communicators");
    const Response response = Get(server->port(), "/api/v1/snapshots");
    std::string error;
    ASSERT_TRUE(ReadSnapshots(response.body, {}, 1 << 20, &message, &error)) << error;
    std::this_thread::sleep_for(kPageLifetime);
  }
  const std::vector<PaceWindow>& pace = message.set.processes.at(0).pace;
  ASSERT_EQ(pace.size(), 2u);
  EXPECT_EQ(pace[0].length_ms / pace[0].collectives, 500u);
  EXPECT_EQ(pace[1].length_ms / pace[1].collectives, 666u);
}

TEST(SnapshotsPage, FailsAsOtherPagesDo) {
  const auto server = StartServer([]() -> SnapshotSet { throw std::runtime_error("no segment"); });
  EXPECT_EQ(Get(server->port(), "/api/v1/snapshots").status, 500);
}

}  // namespace
}  // namespace nccl_pulse
