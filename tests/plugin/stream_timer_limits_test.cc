// Where nothing is timed: no free pair, the budget, settings, no driver, an older API.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include "tests/plugin/older_api.h"
#include "tests/plugin/stream_job.h"
#include "tests/plugin/stream_timer_checks.h"

namespace nccl_pulse {
namespace {

TEST_WITH_STREAM(StreamTimerTest, WhenNoPairIsFreeTheCallIsNotSampled) {
  comm.TimeEveryCall();
  for (int i = 0; i < 50; ++i) comm.Run(kMs);
  EXPECT_EQ(Untimed(comm.Read(), UntimedReason::kNotSampled), 2u + 50 - 8);
  AdvanceAndPoll(gpu, kSecond);
  const LatencySnapshot latency = StreamLatency(comm.Read(), "AllReduce");
  EXPECT_EQ(latency.histogram.Count(), 8u);
  ExpectSeconds(latency.histogram.sum_ns, 8 * kMs, 8);  // each its own, none the queue's
  ExpectEveryOperationOnce(comm.Read(), 52);
}

// After rest everything would be timed: a burst must not cost the GPU more than the budget.
TEST_WITH_GPU(StreamTimerTest, ABurstAfterRestKeepsTheBudget) {
  SlowClock();  // the budget is of a second
  StreamCommunicator comm(gpu, 1);
  comm.TimeEveryCall();
  for (int i = 0; i < 300; ++i) {
    comm.Run(1000);
    if (i % 8 == 7) {
      AdvanceAndPoll(gpu, kMs);
    }
  }
  AdvanceAndPoll(gpu, kMs);
  EXPECT_EQ(TimedOperations(comm.Read()), 100u);
  ExpectEveryOperationOnce(comm.Read(), 302);
}

TEST_WITH_STREAM(StreamTimerTest, KernelTimingHasAHeartbeatAndNoPairs,
                 {"NCCL_PULSE_TIMING", "kernel"}) {
  for (int i = 0; i < 10; ++i) comm.Run(kMs);
  WaitForPoll();
  EXPECT_TRUE(comm.Read().has_heartbeat);
  EXPECT_EQ(comm.Read().launches, 10u);
  EXPECT_NE(comm.Read().oldest_inflight_realtime_ns, 0);
  AdvanceAndPoll(gpu, kSecond);
  EXPECT_EQ(comm.Read().launches_completed, 10u);
  EXPECT_EQ(gpu.Calls("cuEventElapsedTime"), 0u);
  EXPECT_EQ(gpu.EventsAlive(), 27);
  EXPECT_EQ(Timed(comm.Read(), LatencyKind::kDurationStream), 0u);
  EXPECT_EQ(ReadSnapshot().duration_source, "kernel");
  EXPECT_EQ(ReadSnapshot().sampling_exponent, -1);
}

TEST_WITH_STREAM(StreamTimerTest, OffAsksTheDriverForNamesAlone, {"NCCL_PULSE_TIMING", "off"}) {
  const uint64_t for_names = gpu.Calls();
  EXPECT_EQ(gpu.EventsAlive(), 0);
  for (int i = 0; i < 10; ++i) comm.Run(kMs);
  AdvanceAndPoll(gpu, kSecond);
  comm.Finalize();
  EXPECT_EQ(gpu.Calls(), for_names);
  EXPECT_EQ(comm.Read().launches, 10u);
  EXPECT_FALSE(comm.Read().has_heartbeat);
  EXPECT_EQ(Untimed(comm.Read(), UntimedReason::kNotTimed), 10u);
  EXPECT_EQ(ReadSnapshot().duration_source, "none");
}

TEST_IN_CHILD(StreamTimerTest, WithoutADriverNothingIsTimedAndItSaysSo) {
  if (dlopen("libcuda.so.1", RTLD_NOW) != nullptr) SkipScenario("this machine has a driver");
  NcclCommunicator comm(1);
  for (int i = 0; i < 10; ++i) comm.Enqueue();
  const ProcessSnapshot snapshot = ReadSnapshot();
  EXPECT_EQ(Untimed(Find(snapshot, 1), UntimedReason::kNotTimed), 10u);
  EXPECT_EQ(Find(snapshot, 1).launches, 10u);
  EXPECT_FALSE(Find(snapshot, 1).has_heartbeat);
  EXPECT_EQ(snapshot.duration_source, "none");
  EXPECT_EQ(snapshot.sampling_exponent, -1);
  int lines = 0;
  for (const std::string& line : TakeLog()) {
    if (line.find("durations: none") != std::string::npos) ++lines;
  }
  EXPECT_EQ(lines, 1);
}

// Before API v5 launches are not seen.
TEST_WITH_GPU(StreamTimerTest, AnOlderApiIsNotTimed) {
  OlderCommunicator comm(1);
  for (int i = 0; i < 5; ++i) comm.Enqueue();
  WaitForPoll();
  const ProcessSnapshot snapshot = ReadSnapshot();
  EXPECT_EQ(Untimed(Find(snapshot, 1), UntimedReason::kNotTimed), 5u);
  EXPECT_FALSE(Find(snapshot, 1).has_heartbeat);
  EXPECT_EQ(snapshot.duration_source, "none");
  EXPECT_EQ(gpu.EventsCreated(), 0u);
}

}  // namespace
}  // namespace nccl_pulse
