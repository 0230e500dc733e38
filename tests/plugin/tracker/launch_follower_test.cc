// Calls and launches of one communicator, and what its operations are told.
#include "plugin/tracker/launch_follower.h"

#include <gtest/gtest.h>

#include "tests/plugin/tracker/parts.h"

namespace nccl_pulse {
namespace {

class LaunchFollowerTest : public ::testing::Test {
 protected:
  // The call's serial, 0: not sampled.
  uint32_t Call(uint64_t bytes = 4096, uint64_t group = 0, NameId op = kAllReduceName) {
    LaunchFollower& launches = process_.parts().launches;
    const uint32_t row = OperationRowOf(op);
    Relaxed<uint32_t>& number = launches.CallNumber(LaunchFollower::PlaceOfNumber(row, 4));
    const OperationMeta call{op, 4, 0, false, number.load()};
    number.add(1);
    return launches.NoteCall(
        process_.instruments, process_.communicator(), process_.parts().ring, call.Pack(),
        KindSeed(process_.communicator().sampling_seed.load(), row, 4), bytes, group);
  }
  uint64_t Start() {
    return launches().Start(process_.instruments, process_.communicator(), nullptr,
                            process_.context);
  }
  void Stop(uint64_t ticket) {
    launches().Stop(process_.instruments, process_.communicator(), ticket, [](uint64_t /*ns*/) {});
  }
  void Launch() { Stop(Start()); }
  LaunchFate FateOf(uint32_t serial, uint64_t bytes = 4096) {
    const uint64_t call = serial != 0 ? CallTicket(serial) : 0;
    return launches().FateOf(process_.instruments, process_.communicator(), kAllReduceName, bytes,
                             call);
  }
  uint64_t CallTicket(uint32_t serial, bool captured = false) const {
    return Ticket::Pack(process_.instruments.process_tag, TicketKind::kApiCall, captured ? 1 : 0,
                        serial, 0, 0);
  }
  // Until the calls are numbered from where they are sampled.
  void PassFirstCalls() {
    process_.SampleAll();
    for (uint64_t i = 0; i < Sampler::kUntimedFirstCalls; ++i) {
      EXPECT_EQ(Call(), 0u);
      Launch();
    }
  }
  LaunchFollower& launches() { return process_.parts().launches; }
  uint64_t Launches() { return process_.record().followed.launches.load(); }

  Process process_;
};

TEST_F(LaunchFollowerTest, ALaunchCoversTheCallsBeforeIt) {
  Call();
  Call();
  EXPECT_EQ(launches().pending().calls, 2u);
  Launch();
  EXPECT_EQ(launches().pending().calls, 0u);
  EXPECT_EQ(Launches(), 1u);
}

TEST_F(LaunchFollowerTest, ALaunchIsStoppedOnce) {
  const uint64_t ticket = Start();
  Stop(ticket);
  Stop(ticket);
  EXPECT_EQ(Launches(), 1u);
  EXPECT_EQ(process_.Ignored(IgnoredReason::kRepeatedStop), 1u);
  Start();
  Stop(ticket);  // of the launch before
  EXPECT_EQ(process_.Ignored(IgnoredReason::kRepeatedStop), 2u);
}

TEST_F(LaunchFollowerTest, OneThatIsPartOfAGraphIsNoLaunch) {
  process_.gpu.is_capturing = true;
  Launch();
  EXPECT_EQ(Launches(), 0u);
  EXPECT_EQ(process_.gpu.records, 0);
  EXPECT_EQ(process_.record().captured.load(), 1u);
}

TEST_F(LaunchFollowerTest, TheOperationOfASampledCallHasItsLaunchsDuration) {
  PassFirstCalls();
  const uint32_t serial = Call();
  EXPECT_NE(serial, 0u);
  Launch();
  EXPECT_EQ(FateOf(serial), LaunchFate::kTimed);
  Call();
  Launch();
  EXPECT_EQ(FateOf(serial), LaunchFate::kTimed);  // reported late, by a host callback
  EXPECT_EQ(FateOf(0), LaunchFate::kNotSampled);  // another one's
}

TEST_F(LaunchFollowerTest, OneThatIsReportedBeforeItsLaunchIsNotTimed) {
  PassFirstCalls();
  const uint32_t serial = Call();
  EXPECT_NE(FateOf(serial), LaunchFate::kTimed);
  Launch();
  EXPECT_NE(FateOf(serial), LaunchFate::kTimed);
}

TEST_F(LaunchFollowerTest, OneThatWasCapturedSaysSo) {
  Launch();
  EXPECT_EQ(launches().FateOf(process_.instruments, process_.communicator(), kAllReduceName, 8,
                              CallTicket(0, true)),
            LaunchFate::kCaptured);
}

TEST_F(LaunchFollowerTest, ALaunchOfSeveralIsNoDurationOfOne) {
  PassFirstCalls();
  for (int i = 0; i < 3; ++i) {  // those of several are sampled by their own count
    Call(1000, 5);
    Call(500, 5);
    Launch();
  }
  EXPECT_EQ(FateOf(0, 500), LaunchFate::kGrouped);
  uint32_t grouped = 0;
  for (uint32_t pair = 0; pair < kTimedPairs; ++pair) {
    const TimedLaunches::Load load = launches().timed().LoadOf(pair);
    if (load.is_single || load.meta.op != kGroupedName || load.bytes == 0) continue;
    ++grouped;
    EXPECT_EQ(load.bytes, 500u);  // NCCL reported this one of the two
    EXPECT_EQ(load.bus_bytes, 500u / 8 * 2 * 7 + 500u % 8 * 2 * 7 / 8);
  }
  EXPECT_EQ(grouped, 1u);
}

TEST_F(LaunchFollowerTest, CallsOfAnEarlierGroupAreLeftBehind) {
  Call(8, 5);
  Call(8, 6);
  EXPECT_EQ(launches().pending().calls, 1u);
  EXPECT_EQ(launches().unreported().LeftAt(launches().pending().launch_number), 1u);
}

TEST_F(LaunchFollowerTest, OneThatNeverStopsIsAbandonedAtTheNext) {
  PassFirstCalls();
  const uint32_t serial = Call();
  Start();
  EXPECT_EQ(FateOf(serial), LaunchFate::kTimed);
  Launch();
  EXPECT_EQ(Launches(), Sampler::kUntimedFirstCalls + 1);
  // It was told that it is timed, so it is counted as lost.
  uint64_t lost = 0;
  for (const SeriesEntry& series : process_.record().series) {
    const uint64_t key = series.key.load();
    lost += key == SeriesKey::Untimed(kAllReduceName, UntimedReason::kLost);
  }
  EXPECT_EQ(lost, 1u);
}

TEST_F(LaunchFollowerTest, AGateStandsWhereNobodyIsInAHurry) {
  const auto records_of_a_launch = [this] {
    const int before = process_.gpu.records;
    Launch();
    return process_.gpu.records - before;
  };
  for (int i = 0; i < 2; ++i) Launch();  // nothing came before the first one
  for (int look = 0; look < 3; ++look) {
    // All are made at the same moment: four after a look have one.
    const int with_gate = records_of_a_launch();
    for (int i = 1; i < 4; ++i) EXPECT_EQ(records_of_a_launch(), with_gate) << i;
    for (int i = 0; i < 4; ++i) EXPECT_EQ(records_of_a_launch(), with_gate - 1) << i;
    launches().NoteLook();
  }
}

TEST_F(LaunchFollowerTest, ACopyEngineCollectiveTakesItsCallFromItsGroup) {
  Call(1000, 5);
  Call(500, 5);
  bool is_timed = false;
  const CopyEngineEvent event{"AllGather", "ncclInt8", 500, nullptr, 0};
  Stop(launches().StartCopies(process_.instruments, process_.communicator(), event,
                              {kAllGatherName, 4, 0, false, 0}, 500, process_.context, &is_timed));
  EXPECT_EQ(Launches(), 1u);
  EXPECT_EQ(launches().pending().calls, 2u);
  EXPECT_EQ(launches().unreported().Standing(launches().pending()), 1u);
}

TEST_F(LaunchFollowerTest, TheNextCommunicatorBeginsAnew) {
  PassFirstCalls();
  const uint32_t serial = Call();
  Launch();
  Call();
  launches().Reset();
  EXPECT_EQ(launches().pending().calls, 0u);
  EXPECT_EQ(FateOf(serial), LaunchFate::kNotTimed);
  EXPECT_EQ(Call(), 0u);  // its first call of that kind
}

TEST(LaunchFollower, WithoutADriverNothingIsFollowed) {
  Process process(TimingMode::kAuto, false);
  LaunchFollower& launches = process.parts().launches;
  EXPECT_FALSE(launches.is_followed());
  launches.CountUnfollowed(process.instruments, process.communicator(), false);
  EXPECT_EQ(process.record().lanes[0].launches.load(), 1u);
  EXPECT_EQ(process.gpu.records, 0);
}

}  // namespace
}  // namespace nccl_pulse
