// AlltoAll, Gather and Scatter by name: what NCCL reports of them, and what the page has.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/plugin/stream_job.h"

namespace nccl_pulse {
namespace {

using CallList = std::vector<StreamCommunicator::Call>;

// As NCCL makes them on two ranks (taskAppend in src/enqueue.cc).
CallList AlltoAll(uint64_t bytes) {
  return {{"Send", bytes}, {"Recv", bytes}, {"Send", bytes}, {"Recv", bytes}};
}
CallList Gather(uint64_t bytes) { return {{"Send", bytes}, {"Recv", bytes}, {"Recv", bytes}}; }
CallList Scatter(uint64_t bytes) { return {{"Send", bytes}, {"Send", bytes}, {"Recv", bytes}}; }

constexpr int kOneCall = 1;
constexpr int kOwnGroup = 2;

// "AlltoAll 3, Gather 1 captured": by operation, as the record has them.
std::string Composites(const CommunicatorSnapshot& communicator) {
  std::map<std::string, uint64_t> sums;
  for (const CompositeSnapshot& composite : communicator.composites) {
    sums[composite.op + (composite.captured ? " captured" : "")] += composite.operations;
  }
  std::string text;
  for (const auto& [name, operations] : sums) {
    text += (text.empty() ? "" : ", ") + name + " " + std::to_string(operations);
  }
  return text;
}

uint64_t CallsOf(const CommunicatorSnapshot& communicator, const std::string& op) {
  uint64_t calls = 0;
  for (const CallCountSnapshot& call : communicator.calls) calls += call.op == op ? call.calls : 0;
  return calls;
}

TEST_WITH_STREAM(CompositeTest, OneCallIsCountedByItsNameBesideItsParts) {
  for (int i = 0; i < 3; ++i) comm.RunGroup(kMs, AlltoAll(1000), kOneCall);
  comm.RunGroup(kMs, Gather(1000), kOneCall);
  comm.RunGroup(kMs, Scatter(1000), kOneCall);
  const CommunicatorSnapshot measured = comm.Read();
  EXPECT_EQ(Composites(measured), "AlltoAll 3, Gather 1, Scatter 1");
  EXPECT_EQ(CallsOf(measured, "AlltoAll"), 0u);  // not twice in one metric
  EXPECT_EQ(CallsOf(measured, "Send"), 3u * 2 + 1 + 2);
  EXPECT_EQ(CallsOf(measured, "Recv"), 3u * 2 + 2 + 1);
}

TEST_WITH_STREAM(CompositeTest, AGroupOfTheApplicationsStaysSendAndRecv) {
  TimeEveryCall();
  for (int i = 0; i < 4; ++i) {
    comm.RunGroup(kMs, AlltoAll(1000), kOwnGroup);
    comm.RunGroup(kMs, Gather(1000), kOwnGroup);
  }
  for (int i = 0; i < 4; ++i) comm.Run(kMs, "Send");  // a Gather, where it is not the root
  AdvanceAndPoll(gpu, kSecond);
  EXPECT_EQ(Composites(comm.Read()), "");
  EXPECT_EQ(StreamLatency(comm.Read(), "AlltoAll").histogram.Count(), 0u);
  EXPECT_GT(StreamLatency(comm.Read(), "Grouped").histogram.Count(), 0u);
}

// The group's context is not known, so nothing is learnt of the group; a communicator in it must
// not take the one before for its own.
TEST_WITH_GPU(CompositeTest, AGroupThatBeginsWithAnUnknownCommunicatorIsNotTheOneBefore) {
  StreamCommunicator ended(gpu, 1);
  StreamCommunicator comm(gpu, 2);
  comm.RunGroup(kMs, {{"AllReduce", 64}}, kOneCall);
  ended.Finalize();
  ended.StartGroup(false, kOwnGroup);
  for (const auto& call : AlltoAll(1000)) comm.MakeCall(nullptr, call.op, call.bytes);
  comm.Launch(nullptr, kMs);
  EXPECT_EQ(Composites(comm.Read()), "");
}

TEST_WITH_STREAM(CompositeTest, ALaunchOfOneHasItsNameAndItsBusBandwidth) {
  TimeEveryCall();
  for (int i = 0; i < 5; ++i) comm.RunGroup(7 * kMs, AlltoAll(1000), kOneCall);
  AdvanceAndPoll(gpu, kSecond);
  const CommunicatorSnapshot measured = comm.Read();
  const LatencySnapshot latency = StreamLatency(measured, "AlltoAll");
  EXPECT_EQ(latency.histogram.Count(), 3u);  // all but the first two
  EXPECT_EQ(latency.bytes, 3u * 1000);
  EXPECT_EQ(latency.bus_bytes, 3u * 1000);  // n - 1 ranks, of two
  EXPECT_EQ(StreamLatency(measured, "Grouped").histogram.Count(), 0u);
  // Its parts have none of their own, as those of any group.
  EXPECT_EQ(Untimed(measured), 5u * 4);
  // Ranks compare it by the number of the call.
  ASSERT_EQ(measured.timed_calls.size(), 3u);
  for (uint64_t i = 0; i < 3; ++i) {
    EXPECT_EQ(measured.timed_calls[i].op, "AlltoAll");
    EXPECT_EQ(measured.timed_calls[i].call_number, i + 2);
  }
}

TEST_WITH_STREAM(CompositeTest, OneThatIsCutIntoLaunchesIsCountedOnceAndTimedAsGroups) {
  TimeEveryCall();
  for (int i = 0; i < 4; ++i) {
    void* group = comm.StartGroup(false, kOneCall);
    CallList made;
    for (const auto& call : AlltoAll(1000)) {
      made.push_back(comm.MakeCall(group, call.op, call.bytes));
    }
    comm.Launch(group, kMs);
    comm.Report(made[0]);
    comm.Report(made[1]);
    comm.Launch(group, kMs);
    comm.Report(made[2]);
    comm.Report(made[3]);
    comm.StopGroup(group);
  }
  AdvanceAndPoll(gpu, kSecond);
  EXPECT_EQ(Composites(comm.Read()), "AlltoAll 4");
  EXPECT_EQ(StreamLatency(comm.Read(), "AlltoAll").histogram.Count(), 0u);
  EXPECT_GT(StreamLatency(comm.Read(), "Grouped").histogram.Count(), 0u);
}

TEST_WITH_STREAM(CompositeTest, ACapturedOneSaysSo) {
  for (const auto& calls : {AlltoAll(1000), Gather(1000)}) {
    void* group = comm.StartGroup(true, kOneCall);
    for (const auto& call : calls) comm.MakeCall(group, call.op, call.bytes, true);
    comm.StopLaunch(comm.StartLaunch(group));
    comm.StopGroup(group);
  }
  EXPECT_EQ(Composites(comm.Read()), "AlltoAll captured 1, Gather captured 1");
}

TEST_WITH_STREAM(CompositeTest, KernelTimingCountsThemToo, {"NCCL_PULSE_TIMING", "kernel"}) {
  comm.RunGroup(kMs, AlltoAll(1000), kOneCall);
  EXPECT_EQ(Composites(comm.Read()), "AlltoAll 1");
}

}  // namespace
}  // namespace nccl_pulse
