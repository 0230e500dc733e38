#include "exporter/diagnosis/facts/rank_activity.h"

#include <set>

#include "exporter/diagnosis/testing/simulated_job.h"
#include "gtest/gtest.h"

namespace nccl_pulse {
namespace {

constexpr int64_t kNow = kStart + 100 * kSecond;
constexpr uint32_t kMask = 0x1f0a;  // API v6: calls, launches, operations

struct Rank {
  ProcessSnapshot process;
  CommunicatorSnapshot communicator;

  RankActivity Activity(int64_t now = kNow) const { return ActivityOf(process, communicator, now); }
  void SetInFlight() {
    communicator.launches_completed = communicator.launches - 1;
    communicator.oldest_inflight_realtime_ns = kNow - kSecond;
  }
};

Rank IdleRank() {
  Rank rank;
  rank.process.poller = PollerState::kRunning;
  rank.process.last_poll_realtime_ns = kNow - 50 * kMs;
  rank.communicator.has_heartbeat = true;
  rank.communicator.launches = rank.communicator.launches_completed = 7;
  rank.communicator.event_mask = kMask;
  return rank;
}

void ExpectUnknown(const Rank& rank, UnknownReason reason, int64_t now = kNow) {
  EXPECT_EQ(rank.Activity(now).state, ActivityState::kUnknown);
  EXPECT_STREQ(UnknownReasonName(rank.Activity(now).reason), UnknownReasonName(reason));
}

struct RankActivityTest : testing::Test {
  Rank rank = IdleRank();
};

TEST_F(RankActivityTest, IdleAndInFlight) {
  EXPECT_TRUE(rank.Activity().is_idle());
  rank.SetInFlight();
  rank.communicator.oldest_launch = OldestLaunch::kBegun;
  const RankActivity activity = rank.Activity();
  EXPECT_TRUE(activity.is_in_flight());
  EXPECT_EQ(activity.since_realtime_ns, kNow - kSecond);
  EXPECT_EQ(activity.oldest_launch, OldestLaunch::kBegun);
}

// The background thread has not looked since: what it saw last is that nothing was in flight.
TEST_F(RankActivityTest, ALaunchSinceTheLastLookIsInFlight) {
  ++rank.communicator.launches;
  rank.communicator.last_launch_realtime_ns = kNow - 20 * kMs;
  EXPECT_TRUE(rank.Activity().is_in_flight());
  EXPECT_EQ(rank.Activity().since_realtime_ns, kNow - 20 * kMs);
}

// What contradicts "idle" does not contradict "in flight".
TEST_F(RankActivityTest, WhatIsSeenInFlightIs) {
  rank.SetInFlight();
  rank.communicator.captured = true;
  rank.communicator.unreported_calls = 3;
  rank.process.event_mask_changes = 1;
  EXPECT_TRUE(rank.Activity().is_in_flight());
}

TEST_F(RankActivityTest, ReplayBetweenStampsIsInFlight) {
  rank.communicator.captured = true;
  rank.communicator.graph_replays_in_flight = 1;
  rank.communicator.graph_moved_realtime_ns = kNow - 3 * kSecond;
  EXPECT_TRUE(rank.Activity().is_in_flight());
  EXPECT_TRUE(rank.Activity().is_in_replay);
  EXPECT_EQ(rank.Activity().since_realtime_ns, kNow - 3 * kSecond);
  // A launch may stand behind it: that it has not begun says nothing of the replay.
  rank.SetInFlight();
  rank.communicator.oldest_launch = OldestLaunch::kNotBegun;
  EXPECT_EQ(rank.Activity().since_realtime_ns, kNow - kSecond);
  EXPECT_EQ(rank.Activity().oldest_launch, OldestLaunch::kUnknown);
}

TEST_F(RankActivityTest, CallsThatAreNotReported) {
  rank.communicator.unreported_calls = 1;
  rank.communicator.unreported_since_realtime_ns = kNow - 9 * kSecond;
  ExpectUnknown(rank, UnknownReason::kLaunchNotReported);
  EXPECT_EQ(rank.Activity().since_realtime_ns, kNow - 9 * kSecond);
}

TEST_F(RankActivityTest, Graphs) {
  rank.communicator.captured = true;
  ExpectUnknown(rank, UnknownReason::kCaptured);
  const auto word = [this] {
    return std::string(
        StateOf(rank.process, rank.communicator, rank.Activity(), false, false).word);
  };
  EXPECT_EQ(word(), "in graphs");
  rank.communicator.work.state = WorkState::kStuck;
  rank.communicator.work.moved_realtime_ns = kNow - 9 * kSecond;
  ExpectUnknown(rank, UnknownReason::kCounterStuck);
  EXPECT_EQ(rank.Activity().since_realtime_ns, kNow - 9 * kSecond);
  EXPECT_EQ(word(), "stuck");
  EXPECT_EQ(
      StateOf(rank.process, rank.communicator, rank.Activity(), false, false).since_realtime_ns,
      kNow - 9 * kSecond);
  EXPECT_STREQ(StateOf(rank.process, rank.communicator, rank.Activity(), false, true).word,
               "waits");
}

TEST_F(RankActivityTest, WithoutCompletions) {
  rank.communicator.has_heartbeat = false;
  ExpectUnknown(rank, UnknownReason::kNoCompletions);
  // Proxy operations say what is in flight, never that nothing is.
  rank.communicator.operations_source = CompletionSource::kProxy;
  ExpectUnknown(rank, UnknownReason::kNoCompletions);
  rank.communicator.oldest_operation_realtime_ns = kNow - 2 * kSecond;
  EXPECT_EQ(rank.Activity().since_realtime_ns, kNow - 2 * kSecond);
  EXPECT_TRUE(rank.Activity().is_in_flight());
}

TEST_F(RankActivityTest, ABackgroundThreadThatStandsOrNeverRan) {
  for (const bool in_flight : {false, true}) {
    rank = IdleRank();
    if (in_flight) rank.SetInFlight();
    const int64_t polled = rank.process.last_poll_realtime_ns;
    EXPECT_FALSE(rank.Activity(polled + kStoppedAfterNs - 1).is_unknown());
    ExpectUnknown(rank, UnknownReason::kPollerStalled, polled + kStoppedAfterNs);
    EXPECT_EQ(rank.Activity(polled + kStoppedAfterNs).since_realtime_ns, polled);
    rank.process.last_poll_realtime_ns = 0;  // it runs, and has never looked
    ExpectUnknown(rank, UnknownReason::kPollerStalled);
    rank.process.poller = PollerState::kNotStarted;
    ExpectUnknown(rank, UnknownReason::kPollerNotStarted);
    rank.process.last_poll_realtime_ns = polled;
    ExpectUnknown(rank, UnknownReason::kPollerNotStarted);
    rank.process.poller = PollerState::kEnded;  // in exit()
    ExpectUnknown(rank, UnknownReason::kPollerEnded);
    EXPECT_EQ(rank.Activity().since_realtime_ns, polled);
  }
}

// What ended is told as of its end, however long ago that is.
TEST_F(RankActivityTest, OfAProcessThatEnded) {
  rank.SetInFlight();
  rank.process.end = ProcessEnd::kLost;
  rank.process.end_realtime_ns = kNow;
  EXPECT_TRUE(rank.Activity(kNow + 600 * kSecond).is_in_flight());
  rank.process.end_realtime_ns = kNow + 60 * kSecond;  // stopped, then killed
  ExpectUnknown(rank, UnknownReason::kPollerStalled, kNow + 600 * kSecond);
}

TEST_F(RankActivityTest, AGpuThatCanDoNoMore) {
  for (const bool in_flight : {false, true}) {
    rank = IdleRank();
    if (in_flight) rank.SetInFlight();
    rank.communicator.driver_error = 700;
    rank.communicator.driver_error_realtime_ns = kNow - kSecond;
    ExpectUnknown(rank, UnknownReason::kDriverError);
    EXPECT_EQ(rank.Activity().since_realtime_ns, kNow - kSecond);
  }
}

TEST_F(RankActivityTest, AForeignEventMask) {
  const auto with_mask = [](uint32_t mask) {
    Rank rank = IdleRank();
    rank.process.event_mask_changes = 1;
    rank.process.foreign_event_mask = mask;
    return rank;
  };
  EXPECT_TRUE(with_mask(kMask).Activity().is_idle());
  EXPECT_TRUE(with_mask(kMask | 0x40).Activity().is_idle());   // KernelCh besides
  EXPECT_TRUE(with_mask(kMask & ~0xau).Activity().is_idle());  // Coll, ProxyOp: not needed
  for (const uint32_t bit : {0x200u, 0x400u, 0x800u, 0x1000u}) {
    ExpectUnknown(with_mask(kMask & ~bit), UnknownReason::kEventMaskChanged);
  }
  // A call that was made under the mask before this one may still run, and nobody saw it.
  Rank twice = with_mask(kMask | 0x40);
  twice.process.event_mask_changes = 2;
  ExpectUnknown(twice, UnknownReason::kEventMaskChanged);
  // An NCCL that never had the event does not lose it.
  Rank older = with_mask(0xf0a);
  older.communicator.event_mask = 0xf0a;
  EXPECT_TRUE(older.Activity().is_idle());
  // Nobody changed it.
  Rank untouched = with_mask(0);
  untouched.process.event_mask_changes = 0;
  EXPECT_TRUE(untouched.Activity().is_idle());
}

TEST_F(RankActivityTest, AStoppedProcess) {
  ProcessSnapshot process = IdleRank().process;
  const int64_t later = process.last_poll_realtime_ns + kStoppedAfterNs;
  EXPECT_FALSE(IsStopped(process, later - 1));
  EXPECT_TRUE(IsStopped(process, later));
  // Its threads launch on: only the background thread stands.
  CommunicatorSnapshot launching;
  launching.last_launch_realtime_ns = later;
  process.communicators = {launching};
  EXPECT_FALSE(IsStopped(process, later));
  process.communicators[0].last_launch_realtime_ns = process.last_poll_realtime_ns + 100 * kMs;
  EXPECT_TRUE(IsStopped(process, later));
  process.poller = PollerState::kNotStarted;
  EXPECT_FALSE(IsStopped(process, later));
  process.poller = PollerState::kEnded;
  EXPECT_FALSE(IsStopped(process, later));
  process.poller = PollerState::kUnknown;
  EXPECT_TRUE(IsStopped(process, later));
  // The kernel knows better.
  for (const auto& [state, is_stopped] :
       {std::pair(RunState::kStopped, true), std::pair(RunState::kTraced, true),
        std::pair(RunState::kFrozen, true), std::pair(RunState::kRunning, false),
        std::pair(RunState::kUninterruptible, false)}) {
    process.run_state = state;
    EXPECT_EQ(IsStopped(process, later), is_stopped) << RunStateName(state);
  }
  process.run_state = RunState::kStopped;
  process.end = ProcessEnd::kLost;
  EXPECT_FALSE(IsStopped(process, later));
}

TEST_F(RankActivityTest, WhetherCallsAreKnown) {
  const Rank rank = IdleRank();
  const auto known = [](const Rank& rank) {
    return AreCallsKnown(rank.process, rank.communicator);
  };
  EXPECT_EQ(known(rank), CallsKnown::kYes);
  Rank other = rank;
  other.communicator.overflowed_operations = 9;  // latencies, not calls
  EXPECT_EQ(known(other), CallsKnown::kYes);
  other.communicator.overflowed_calls = 1;
  EXPECT_EQ(known(other), CallsKnown::kOverflowed);
  other.communicator.captured = true;
  EXPECT_EQ(known(other), CallsKnown::kCaptured);
  other = rank;
  other.process.event_mask_changes = 1;
  other.process.foreign_event_mask = kMask & ~0x800u;  // launches: calls are counted all the same
  EXPECT_EQ(known(other), CallsKnown::kYes);
  other.process.foreign_event_mask = kMask & ~0x200u;
  EXPECT_EQ(known(other), CallsKnown::kEventMaskChanged);
}

TEST_F(RankActivityTest, EveryReasonHasAName) {
  std::set<std::string> names;
  for (int i = 0; i < kUnknownReasons; ++i) {
    names.insert(UnknownReasonName(static_cast<UnknownReason>(i)));
  }
  EXPECT_EQ(names.size(), static_cast<std::size_t>(kUnknownReasons));
}

}  // namespace
}  // namespace nccl_pulse
