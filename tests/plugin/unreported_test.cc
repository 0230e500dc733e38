// Calls whose launches NCCL does not report: Broadcast from 2.29.2 on, symmetric-memory kernels
// from 2.28.3 to 2.30.7. While they stand, a communicator is not known to be idle. Where the end of
// their group is known to come behind the launch they do not stand: unreported_launch_test.cc.
#include <gtest/gtest.h>

#include <vector>

#include "exporter/diagnosis/diagnosis.h"
#include "tests/plugin/copy_engine.h"

namespace nccl_pulse {
namespace {

// Nobody takes a communicator of it for blocking.
const Environment kNonBlocking{{"NCCL_COMM_BLOCKING", "0"}};

// All that NCCL makes of one: the group and the call, neither KernelLaunch nor Coll.
void RunUnreported(StreamCommunicator& comm, const char* op = "Broadcast") {
  void* group = comm.StartGroup();
  comm.MakeCall(group, op, 4096);
  comm.StopGroup(group);
}

// Several calls in a group and one launch, of which NCCL reports those after the first `hidden`.
void RunMixed(StreamCommunicator& comm, const std::vector<const char*>& ops, size_t hidden) {
  void* group = comm.StartGroup();
  std::vector<StreamCommunicator::Call> calls;
  calls.reserve(ops.size());
  for (const char* op : ops) calls.push_back(comm.MakeCall(group, op, 4096));
  comm.Launch(group, kMs);
  for (size_t i = hidden; i < calls.size(); ++i) comm.Report(calls[i]);
  comm.StopGroup(group);
}

uint64_t Unreported(const StreamCommunicator& comm) {
  WaitForPoll();
  const CommunicatorSnapshot measured = comm.Read();
  EXPECT_EQ(measured.unreported_calls != 0, measured.unreported_since_realtime_ns != 0);
  return measured.unreported_calls;
}

int64_t Since(const StreamCommunicator& comm) { return comm.Read().unreported_since_realtime_ns; }

// The wall clock and the other one are not read at the same moment.
void ExpectSameTime(int64_t time, int64_t other) {
  EXPECT_NEAR(static_cast<double>(time - other), 0, 1e8);
}

constexpr auto kSecondsNs = static_cast<int64_t>(kSecond);

TEST_WITH_STREAM(UnreportedTest, StandsUntilTheNextReportedLaunch, kNonBlocking) {
  comm.LaunchElsewhere();
  EXPECT_EQ(Unreported(comm), 0u);
  for (int i = 0; i < 3; ++i) comm.Run(kMs);
  EXPECT_EQ(Unreported(comm), 0u);
  RunUnreported(comm);
  EXPECT_EQ(Unreported(comm), 1u);
  for (uint64_t calls = 2; calls < 10; ++calls) {
    const int64_t since = Since(comm);
    AdvanceClock(30 * kSecond);
    EXPECT_EQ(Unreported(comm), calls - 1);
    ExpectSameTime(Since(comm), since);
    RunUnreported(comm);
    EXPECT_EQ(Unreported(comm), calls);
    EXPECT_GE(Since(comm), since + 29 * kSecondsNs);  // nothing has moved since this one
  }
  comm.Run(kMs);
  EXPECT_EQ(Unreported(comm), 0u);
  EXPECT_EQ(comm.Read().launches, 4u);
}

// Others stand now than those that stood at the last look; and what the look takes, which may be
// long in the driver, is before its answer.
TEST_WITH_STREAM(UnreportedTest, SinceIsOfThoseThatStandNow, kNonBlocking) {
  comm.LaunchElsewhere();
  RunUnreported(comm);
  EXPECT_EQ(Unreported(comm), 1u);
  const int64_t since = Since(comm);
  gpu.Block("cuEventQuery");
  comm.Run(kMs);
  ASSERT_TRUE(WaitUntil([&] { return gpu.IsBlocked(); }));  // it looks at nothing else meanwhile
  RunUnreported(comm);
  AdvanceClock(30 * kSecond);
  gpu.Unblock();
  EXPECT_EQ(Unreported(comm), 1u);
  EXPECT_GE(Since(comm), since + 29 * kSecondsNs);
}

// NCCL reports the launch of one and not that of the other.
TEST_WITH_STREAM(UnreportedTest, GroupsOfBoth, kNonBlocking) {
  comm.LaunchElsewhere();
  RunMixed(comm, {"Broadcast", "AllReduce"}, 1);
  EXPECT_EQ(Unreported(comm), 1u);
  const int64_t since = Since(comm);
  AdvanceClock(30 * kSecond);
  EXPECT_EQ(Unreported(comm), 1u);
  ExpectSameTime(Since(comm), since);
  RunUnreported(comm);
  EXPECT_EQ(Unreported(comm), 2u);
  const int64_t again = Since(comm);
  EXPECT_GE(again, since + 29 * kSecondsNs);
  AdvanceClock(30 * kSecond);
  RunMixed(comm, {"Broadcast", "Broadcast", "AllReduce", "Send", "Recv"}, 2);
  EXPECT_EQ(Unreported(comm), 2u);
  EXPECT_GE(Since(comm), again + 29 * kSecondsNs);
  comm.Run(kMs);  // a launch behind it
  EXPECT_EQ(Unreported(comm), 0u);
  AdvanceClock(kSecond);
  EXPECT_EQ(Unreported(comm), 0u);
}

// What is reported is reported, whatever the number of launches; and a send to oneself, which NCCL
// copies or leaves out, hides nothing.
TEST_WITH_STREAM(UnreportedTest, GroupsCutIntoSeveralLaunches, kNonBlocking) {
  comm.LaunchElsewhere();
  for (const bool leaves_out : {false, true}) {
    void* group = comm.StartGroup();
    std::vector<StreamCommunicator::Call> calls;
    for (int i = 0; i < 8; ++i) {
      calls.push_back(comm.MakeCall(group, i % 2 == 0 ? "Send" : "Recv", 4096));
    }
    for (size_t launch = 0; launch < 2; ++launch) {
      comm.Launch(group, kMs);
      for (size_t i = 4 * launch; i < 4 * launch + 4; ++i) {
        if (!leaves_out || i >= 2) comm.Report(calls[i]);
      }
      EXPECT_EQ(Unreported(comm), 0u);
    }
    comm.StopGroup(group);
  }
  void* group = comm.StartGroup();
  std::vector<StreamCommunicator::Call> calls;
  for (int i = 0; i < 4; ++i) calls.push_back(comm.MakeCall(group, "AllReduce", 4096));
  for (const StreamCommunicator::Call& call : calls) {
    comm.Launch(group, kMs);
    comm.Report(call);
  }
  EXPECT_EQ(Unreported(comm), 0u);
}

// Launched with their graph: not now, and not by a launch that is reported.
TEST_WITH_STREAM(UnreportedTest, CapturedCallsDoNotStand, kNonBlocking) {
  comm.LaunchElsewhere();
  const auto capture = [&] {
    gpu.BeginCapture(comm.stream());
    void* group = comm.StartGroup(true);
    comm.MakeCall(group, "Broadcast", 4096, true);
    const auto call = comm.MakeCall(group, "AllReduce", 4096, true);
    comm.Launch(group, kMs);
    comm.Report(call);
    comm.StopGroup(group);
    EXPECT_TRUE(gpu.EndCapture(comm.stream()));
  };
  capture();
  EXPECT_EQ(Unreported(comm), 0u);
  RunUnreported(comm);  // eagerly
  capture();
  EXPECT_EQ(Unreported(comm), 1u) << "the captured launch comes later, or never";
  RunUnreported(comm);
  EXPECT_EQ(Unreported(comm), 2u);
  comm.Run(kMs);
  EXPECT_EQ(Unreported(comm), 0u);
}

// A copy-engine collective is reported as CeColl alone.
TEST_WITH_STREAM(UnreportedTest, CopyEngineCollectivesAreReported, kNonBlocking) {
  comm.LaunchElsewhere();
  CopyEngine engine(gpu, comm);
  const auto carry = [&engine](const StreamCommunicator::Call& call) { engine.Carry(call, kMs); };
  RunUnreported(comm);
  carry(comm.MakeCall(comm.StartGroup(), "AllGather", 4096));
  EXPECT_EQ(Unreported(comm), 0u) << "behind the one that is hidden";
  void* group = comm.StartGroup();
  const auto first = comm.MakeCall(group, "AllGather", 4096);
  const auto second = comm.MakeCall(group, "AllGather", 4096);
  carry(first);
  EXPECT_EQ(Unreported(comm), 1u);
  carry(second);
  EXPECT_EQ(Unreported(comm), 0u);
  group = comm.StartGroup();
  const auto copied = comm.MakeCall(group, "AllGather", 4096);
  const auto launched = comm.MakeCall(group, "AllReduce", 4096);
  comm.MakeCall(group, "Broadcast", 4096);
  carry(copied);
  comm.Launch(group, kMs);
  comm.Report(launched);
  EXPECT_EQ(Unreported(comm), 1u);
}

// Launches are reported as before when the driver cannot tell what becomes of them.
TEST_WITH_GPU(UnreportedTest, WithoutEventsLaunchesCountAllTheSame, kNonBlocking) {
  gpu.Fail("cuEventCreate", 2);
  StreamCommunicator comm(gpu, 1);
  comm.LaunchElsewhere();
  gpu.StopFailing();
  for (int i = 0; i < 3; ++i) {
    RunUnreported(comm);
    EXPECT_EQ(Unreported(comm), 1u);
    comm.Run(kMs);
    EXPECT_EQ(Unreported(comm), 0u);
  }
  EXPECT_FALSE(comm.Read().has_heartbeat);
}

TEST_WITH_STREAM(UnreportedTest, EndsWithItsCommunicator, kNonBlocking) {
  comm.LaunchElsewhere();
  RunMixed(comm, {"Broadcast", "AllReduce"}, 1);
  EXPECT_EQ(Unreported(comm), 1u);
  RunUnreported(comm);
  EXPECT_EQ(Unreported(comm), 2u);
  comm.Finalize();
  EXPECT_EQ(Unreported(comm), 0u);
  AdvanceClockAndPoll(700 * kSecond);
  StreamCommunicator next(gpu, 2);  // in its place
  next.LaunchElsewhere();
  EXPECT_EQ(ReadSnapshot().communicators.size(), 1u);
  EXPECT_EQ(Unreported(next), 0u);
  RunUnreported(next);
  EXPECT_EQ(Unreported(next), 1u);
}

// A Recv in a direction in which nothing is connected. NCCL connects at the end of the group, on the calling
// thread, and waits there for the peer (src/group.cc, ncclP2PPreconnectFunc): GroupApi starts, P2pApi
// starts and stops, and nothing follows until the peer calls.
TEST_WITH_STREAM(UnreportedTest, AHostThatWaitsForAPeerToConnect) {
  const auto hang = [] {
    WaitForPoll();
    const ProcessSnapshot process = ReadSnapshot();
    return Diagnosis()
        .Update(SnapshotSet({process}), process.last_poll_realtime_ns)
        .front()
        .hang.has_value();
  };
  for (int i = 0; i < 300; ++i)
    comm.Run(kMs, "Send");  // ends of groups are not asked for any longer
  gpu.Advance(kSecond);
  AdvanceClock(30 * kSecond);
  EXPECT_FALSE(hang());
  void* group = comm.StartGroup(false, 2);
  const StreamCommunicator::Call call = comm.MakeCall(group, "Recv", 4096);
  EXPECT_EQ(Unreported(comm), 1u);
  EXPECT_EQ(comm.Read().last_call_op, "Recv");
  EXPECT_FALSE(hang());
  AdvanceClock(11 * kSecond);
  EXPECT_TRUE(hang());
  comm.Launch(group, kMs);  // the peer has come
  comm.Report(call);
  comm.StopGroup(group);
  gpu.Advance(kSecond);
  AdvanceClock(11 * kSecond);
  EXPECT_FALSE(hang());
}

// Its end is asked for, and tells that the host is no longer inside NCCL.
TEST_WITH_STREAM(UnreportedTest, AGroupThatNcclHasNotEnded) {
  const auto is_in_group = [&comm] {
    WaitForPoll();
    return comm.Read().are_unreported_in_group;
  };
  void* group = comm.StartGroup();
  EXPECT_FALSE(is_in_group());
  comm.MakeCall(group, "AllReduce", 4096);
  EXPECT_TRUE(is_in_group());
  EXPECT_EQ(Unreported(comm), 1u);
  comm.StopGroup(group);  // it has failed
  EXPECT_FALSE(is_in_group());
  EXPECT_EQ(Unreported(comm), 1u);
  group = comm.StartGroup();
  const StreamCommunicator::Call call = comm.MakeCall(group, "AllReduce", 4096);
  EXPECT_TRUE(is_in_group());
  comm.Launch(group, kMs);
  EXPECT_FALSE(is_in_group());
  comm.Report(call);
  comm.StopGroup(group);
  // No more ends are asked for, and the last one does not come.
  while (group != nullptr) group = comm.StartGroup();
  comm.MakeCall(group, "AllReduce", 4096);
  EXPECT_EQ(Unreported(comm), 1u);
  EXPECT_FALSE(is_in_group());
}

}  // namespace
}  // namespace nccl_pulse
