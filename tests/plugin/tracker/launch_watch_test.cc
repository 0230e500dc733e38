// How long launches stand still, and what becomes of those that were timed.
#include "plugin/tracker/launch_watch.h"

#include <gtest/gtest.h>

#include "plugin/tracker/work_follower.h"
#include "tests/plugin/tracker/parts.h"

namespace nccl_pulse {
namespace {

constexpr uint64_t kSecond = 1000000000;

StreamTimer::Progress Stands(uint64_t since_ns) {
  StreamTimer::Progress progress;
  progress.oldest_ns = since_ns;
  progress.in_flight = true;
  return progress;
}

StreamTimer::Progress Goes() {
  StreamTimer::Progress progress;
  progress.advanced = true;
  return progress;
}

TEST(Standstill, CountsAsLongAsItWasSeenToLast) {
  Standstill standstill{};
  EXPECT_EQ(standstill.Look(1, Stands(1 * kSecond), 2 * kSecond, 4, true).ns, 0u);
  EXPECT_EQ(standstill.Look(1, Stands(1 * kSecond), 5 * kSecond, 4, true).ns, 0u);
  // The thread was stopped until much later.
  const Standstill::Wait wait = standstill.Look(1, Goes(), 90 * kSecond, 6, true);
  EXPECT_EQ(wait.ns, 4 * kSecond);
  EXPECT_EQ(wait.last_call, 4u);
  EXPECT_EQ(standstill.Look(1, Goes(), 91 * kSecond, 6, true).ns, 0u);
}

TEST(Standstill, ShortOnesAndThoseThatEndWithTheirCommunicatorDoNotCount) {
  Standstill standstill{};
  standstill.Look(1, Stands(kSecond), kSecond + kSecond / 2, 4, true);
  EXPECT_EQ(standstill.Look(1, Goes(), 3 * kSecond, 4, true).ns, 0u);
  standstill.Look(1, Stands(5 * kSecond), 9 * kSecond, 4, true);
  EXPECT_EQ(standstill.Look(1, Goes(), 9 * kSecond, 4, false).ns, 0u);
}

TEST(Standstill, TheNextCommunicatorBeginsAnew) {
  Standstill standstill{};
  standstill.Look(1, Stands(1 * kSecond), 5 * kSecond, 4, true);
  EXPECT_EQ(standstill.Look(2, Goes(), 5 * kSecond, 4, true).ns, 0u);
}

TEST(LaunchWatch, CompletedLaunchesReachTheRecord) {
  Process process;
  Communicator& communicator = process.communicator();
  LaunchFollower& launches = process.parts().launches;
  process.gpu.is_behind = true;
  launches.Stop(process.instruments, communicator,
                launches.Start(process.instruments, communicator, nullptr, process.context),
                [](uint64_t /*ns*/) {});
  LaunchWatch watch{};
  bool is_stalled = false;
  const WorkFollower work(process.instruments);
  const uint64_t now_ns = process.clock.NowNs();
  EXPECT_TRUE(watch.Poll(process.instruments, communicator, work, now_ns + 1, true, &is_stalled));
  EXPECT_EQ(process.record().heartbeat.Read().launches_completed, 0u);
  EXPECT_EQ(process.record().heartbeat.Read().oldest_inflight_ns, now_ns);
  process.gpu.is_behind = false;
  EXPECT_TRUE(watch.Poll(process.instruments, communicator, work, now_ns + 2, true, &is_stalled));
  EXPECT_EQ(process.record().heartbeat.Read().launches_completed, 1u);
  EXPECT_EQ(process.record().heartbeat.Read().oldest_inflight_ns, 0u);
  EXPECT_FALSE(watch.Poll(process.instruments, communicator, work, now_ns + 3, true, &is_stalled));
}

TEST(LaunchWatch, AfterTheDriverFailedNothingIsClaimed) {
  Process process;
  Communicator& communicator = process.communicator();
  LaunchFollower& launches = process.parts().launches;
  process.gpu.record_result = 1;
  launches.Stop(process.instruments, communicator,
                launches.Start(process.instruments, communicator, nullptr, process.context),
                [](uint64_t /*ns*/) {});
  EXPECT_FALSE(launches.is_followed());
  LaunchWatch watch{};
  bool is_stalled = false;
  const WorkFollower work(process.instruments);
  EXPECT_FALSE(watch.Poll(process.instruments, communicator, work, process.clock.NowNs(), true,
                          &is_stalled));
  EXPECT_EQ(communicator.Writer(process.segment.segment()).completion_source(),
            CompletionSource::kNone);
}

}  // namespace
}  // namespace nccl_pulse
