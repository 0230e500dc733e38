// /api/v1/snapshots of a real server.
#include <chrono>
#include <stdexcept>
#include <string>
#include <utility>

#include "exporter/exposition/snapshot_message.h"
#include "gtest/gtest.h"
#include "tests/exporter/test_server.h"

namespace nccl_pulse {
namespace {

TEST(SnapshotsPage, IsWhatTheServerKnows) {
  ServerOptions options;
  options.source = Example;
  options.hang_after = std::chrono::seconds(17);
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

TEST(SnapshotsPage, FailsAsOtherPagesDo) {
  const auto server = StartServer([]() -> SnapshotSet { throw std::runtime_error("no segment"); });
  EXPECT_EQ(Get(server->port(), "/api/v1/snapshots").status, 500);
}

}  // namespace
}  // namespace nccl_pulse
