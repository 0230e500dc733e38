// ncclPulseQuery_v1: what a tuner learns from inside the job.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <atomic>

#include "plugin/abi/pulse_query.h"
#include "plugin/runtime/query_table.h"
#include "tests/plugin/harness.h"
#include "tests/prelude/threads.h"

namespace nccl_pulse {
namespace {

constexpr uint64_t kComm = 0xc0;
constexpr int64_t kSecond = 1000000000;
constexpr int64_t kNow = 1700000000 * kSecond + 500;

ProcessSnapshot SnapshotWith(uint64_t duration_ns, uint64_t calls) {
  ProcessSnapshot snapshot;
  CommunicatorSnapshot communicator;
  communicator.comm_id = kComm;
  LatencySnapshot latency;
  latency.kind = LatencyKind::kDurationStream;
  latency.op = "AllReduce";
  latency.size_class = 1;
  latency.histogram.cells[50] = calls;
  latency.histogram.sum_ns = duration_ns * calls;
  communicator.latencies.push_back(latency);
  // One that other ranks may not have yet, and one that they have.
  for (const int64_t age_ns : {5 * kSecond, 2 * kSecond, 200 * kSecond / 1000}) {
    TimedCallSnapshot call;
    call.op = "AllReduce";
    call.kind = LatencyKind::kDurationStream;
    call.size_class = 1;
    call.call_number = static_cast<uint64_t>(1000 - age_ns / (kSecond / 10));
    call.duration_ns = duration_ns + 1;
    call.end_realtime_ns = kNow - age_ns;
    communicator.timed_calls.push_back(call);
  }
  snapshot.communicators.push_back(communicator);
  return snapshot;
}

TEST(QueryTable, AnswersAfterTheFirstQuestion) {
  QueryTable table;
  const uint64_t key = QueryTable::KeyOf(kComm, "AllReduce", 1);
  EXPECT_FALSE(table.is_used());
  ncclPulseDurations_v1_t durations{};
  EXPECT_EQ(table.Ask(key, &durations), ncclPulseNotYet);
  EXPECT_TRUE(table.is_used());
  EXPECT_EQ(table.Ask(key, &durations), ncclPulseNotYet);
  table.Renew(SnapshotWith(7000, 12), kNow);
  ASSERT_EQ(table.Ask(key, &durations), ncclPulseOk);
  EXPECT_EQ(durations.calls, 12u);
  EXPECT_EQ(durations.mean_ns, 7000u);
  EXPECT_GT(durations.p99_ns, durations.p50_ns);
  EXPECT_EQ(durations.updated_ns, kNow);
  EXPECT_EQ(durations.agreed_call, 980u);
  EXPECT_EQ(durations.agreed_ns, 7001u);
  EXPECT_EQ(durations.agreed_end_ns, kNow - 2 * kSecond);
  // Another kind of call has its own place.
  EXPECT_EQ(table.Ask(QueryTable::KeyOf(kComm, "AllReduce", 2), &durations), ncclPulseNotYet);
  table.Renew(SnapshotWith(9000, 24), kNow + kSecond);
  ASSERT_EQ(table.Ask(key, &durations), ncclPulseOk);
  EXPECT_EQ(durations.mean_ns, 9000u);
}

TEST(QueryTable, IsFullAtSomeTime) {
  QueryTable table;
  ncclPulseDurations_v1_t durations{};
  int without_room = 0;
  for (uint64_t comm = 0; comm < 4 * QueryTable::kSlots; ++comm) {
    const int result = table.Ask(QueryTable::KeyOf(comm, "Reduce", 0), &durations);
    without_room += result == ncclPulseNoRoom;
  }
  EXPECT_GE(without_room, static_cast<int>(3 * QueryTable::kSlots));
  EXPECT_EQ(table.Ask(QueryTable::KeyOf(0, "Reduce", 0), &durations), ncclPulseNotYet);
}

TEST(QueryTable, AnAnswerIsOfOneMoment) {
  QueryTable table;
  const uint64_t key = QueryTable::KeyOf(kComm, "AllReduce", 1);
  ncclPulseDurations_v1_t first{};
  table.Ask(key, &first);
  std::atomic<bool> is_over{false};
  std::atomic<uint64_t> answers{0}, torn{0};
  Threads readers(2, [&](int) {
    while (!is_over) {
      ncclPulseDurations_v1_t durations{};
      if (table.Ask(key, &durations) != ncclPulseOk) continue;
      ++answers;
      torn += durations.mean_ns != durations.calls || durations.agreed_ns != durations.calls + 1;
    }
  });
  for (uint64_t i = 1; i < 2000 || answers < 100; ++i) table.Renew(SnapshotWith(i, i), kNow);
  is_over = true;
  readers.Join();
  EXPECT_EQ(torn, 0u);
}

TEST_IN_CHILD(Query, IsExported, {"NCCL_PULSE_TIMING", "kernel"}) {
  NcclCommunicator communicator(kComm);
  void* const library = dlopen("libnccl-profiler-pulse.so", RTLD_NOW | RTLD_NOLOAD);
  ASSERT_NE(library, nullptr) << dlerror();
  auto* const query = reinterpret_cast<ncclPulseQuery_v1_t*>(dlsym(library, "ncclPulseQuery_v1"));
  ASSERT_NE(query, nullptr);
  ncclPulseDurations_v1_t durations{};
  EXPECT_EQ(query(kComm, "AllReduce", NcclCommunicator::kBytes, &durations), ncclPulseNotYet);
  EXPECT_EQ(query(kComm, "Send", 1, &durations), ncclPulseBadArgument);
  EXPECT_EQ(query(kComm, nullptr, 1, &durations), ncclPulseBadArgument);
  EXPECT_EQ(query(kComm, "AllReduce", 1, nullptr), ncclPulseBadArgument);
  for (int i = 0; i < 10; ++i) communicator.RunWithKernel(2, 1000000, 1090000);
  ASSERT_TRUE(WaitUntil([&] {
    return query(kComm, "AllReduce", NcclCommunicator::kBytes, &durations) == ncclPulseOk &&
           durations.agreed_ns != 0;
  }));
  EXPECT_EQ(durations.mean_ns, 90000u);
  EXPECT_EQ(durations.agreed_ns, 90000u);
}

}  // namespace
}  // namespace nccl_pulse
