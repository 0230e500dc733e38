#include "metrics/record_writer.h"

#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "metrics/lane_writer.h"
#include "metrics/testing/test_segment.h"
#include "tests/metrics/segment_reading.h"

namespace nccl_pulse {
namespace {

uint64_t CallsKey(NameId op, uint32_t size_class) {
  return SeriesKey::Calls(op, size_class, kNoName, false);
}

// Leaves something in every field that a record has.
constexpr int64_t kSecondNs = 1000000000;

void FillEverything(TestSegment& test, uint32_t index, uint32_t generation) {
  for (LaneRole role : {LaneRole::kLaunch, LaneRole::kProgress}) {
    LaneWriter lane = test.Writer(index, generation, role);
    Lane& cells = lane.lane();
    for (Cell& cell : cells.callbacks) cell.publish_sum(3);
    cells.launches.publish_sum(5);
    cells.last_launch_ns.publish_sum(7);
    cells.last_completion_ns.publish_sum(9);
    cells.overflowed_operations.publish_sum(2);
    cells.overflowed_calls.publish_sum(2);
    cells.overflowed_bytes.publish_sum(20);
    for (Cell& cell : cells.network_bytes) cell.publish_sum(11);
    for (Cell& cell : cells.network_wait_ns) cell.publish_sum(13);
    cells.network_moved_ns.store(15);
    lane.Count(CallsKey(kAllReduceName, 4), 3, 300);
    lane.Observe(LatencyKey(kAllReduceName, 4, LatencyKind::kDurationStream), 5000, 100, 150);
    test.Record(index).StoreHeartbeat({4, 77, OldestLaunch::kBegun});
    test.Record(index).AppendTimedCall(
        {kAllReduceName, LatencyKind::kDurationStream, 4, 6, 100, 5000, 99});
  }
  RecordWriter record = test.Record(index);
  record.Distrust(TrustState::kSelfSend);
  record.ChangeCompletionSource(CompletionSource::kNone, CompletionSource::kStream);
  record.NoteCaptured();
  record.StoreUnreportedCalls(3, 30, true);
  record.StoreGraphs({5, 1, 50, {2, 1, 2, 1, 3, 60, 61, 65, true}});
  for (uint64_t call = 1; call <= kLongWaits; ++call) {
    record.NoteWait(call, kSecondNs, kSecondNs);
  }
  record.NoteDriverError(700, 60);
  record.NoteCall(kAllGatherName, 4);
  record.CountFollowedLaunch(8, true);
}

struct RecordWriterTest : testing::Test {
  TestSegment test;
};

TEST_F(RecordWriterTest, States) {
  ASSERT_TRUE(test.segment().PopulateRecord(0));
  RecordWriter record = test.Record(0);
  RecordWriter::Identity identity;
  identity.comm_id = 0xabc;
  identity.name = "world";
  identity.rank = 3;
  identity.nranks = 8;
  identity.nnodes = 2;
  identity.index = 12;
  identity.gpu = "1";
  identity.uuid = "GPU-1";
  identity.pci_bus_id = "00000000:18:00.0";
  identity.init_realtime_ns = 1700;
  identity.nccl_api_version = 6;
  identity.event_mask = 0x321;
  record.Prepare(identity);
  EXPECT_TRUE(Read(test.segment()).communicators.empty()) << "not before it is published";
  record.Publish(CompletionSource::kStream);
  ProcessSnapshot read = Read(test.segment());
  ASSERT_EQ(read.communicators.size(), 1u);
  const CommunicatorSnapshot& live = read.communicators[0];
  EXPECT_EQ(live.comm_id, 0xabcu);
  EXPECT_EQ(live.name, "world");
  EXPECT_EQ(live.rank, 3);
  EXPECT_EQ(live.nranks, 8);
  EXPECT_EQ(live.nnodes, 2);
  EXPECT_EQ(live.index, 12u);
  EXPECT_EQ(live.gpu, "1");
  EXPECT_EQ(live.uuid, "GPU-1");
  EXPECT_EQ(live.pci_bus_id, "00000000:18:00.0");
  EXPECT_EQ(live.init_realtime_ns, 1700);
  EXPECT_EQ(live.nccl_api_version, 6);
  EXPECT_EQ(live.event_mask, 0x321u);
  EXPECT_TRUE(live.has_heartbeat);
  EXPECT_FALSE(live.finalized);
  record.Finalize(5);
  EXPECT_TRUE(Read(test.segment()).communicators.at(0).finalized);
  EXPECT_TRUE(record.Recycle());
  EXPECT_TRUE(Read(test.segment()).communicators.empty());
}

// A wait is a measure for as long as waits like it may be expected to come again.
TEST_F(RecordWriterTest, LongWaitsCountForAWhile) {
  test.AddCommunicator(0, 1, 0, "waits");
  constexpr int64_t kMinute = 60 * kSecondNs;
  const uint64_t call = LastCall::Pack(kAllReduceName, 4);
  const auto note = [&](uint64_t what, int64_t minutes, int64_t begin_minutes) {
    test.Record(0).NoteWait(what, static_cast<uint64_t>(minutes * kMinute),
                            static_cast<uint64_t>((begin_minutes + minutes) * kMinute));
  };
  // Which counts until when, in minutes. (The communicator was made within the first second.)
  const auto waits = [this] {
    std::map<std::pair<std::string, int>, std::pair<int64_t, int64_t>> waits;
    const ProcessSnapshot read = Read(test.segment());
    for (const LongestWaitSnapshot& wait : read.communicators.at(0).longest_waits) {
      waits[{wait.op, wait.size_class}] = {static_cast<int64_t>(wait.longest_ns) / kMinute,
                                           (wait.counts_until_realtime_ns + kMinute / 2) / kMinute};
    }
    return waits;
  };
  const auto only = [&waits] { return waits().at({"AllReduce", 4}); };
  note(call, 10, 10);  // work had gone on for ten minutes before
  EXPECT_EQ(only(), std::pair(int64_t{10}, int64_t{20 + 3 * 10}));
  note(call, 5, 22);  // a shorter one says nothing of the longest
  EXPECT_EQ(only(), std::pair(int64_t{10}, int64_t{50}));
  note(call, 5, 60);  // the longest no longer counts
  EXPECT_EQ(only(), std::pair(int64_t{5}, int64_t{65 + 3 * 60}));
  note(call, 6, 100);  // about as long as the one before
  EXPECT_EQ(only(), std::pair(int64_t{6}, int64_t{106 + 3 * 41}));
  note(LastCall::Pack(kAllReduceName, 5), 2, 110);  // another size
  note(LastCall::Pack(kAllGatherName, 4), 2, 110);  // another operation
  EXPECT_EQ(only(), std::pair(int64_t{6}, int64_t{229}));
  EXPECT_EQ(waits().size(), 3u);
  // There is room for so many kinds: the shortest gives way.
  for (uint32_t size = 5; size < 5 + 2 * kLongWaits; ++size) {
    note(LastCall::Pack(kAllGatherName, size), 3, 120);
  }
  EXPECT_EQ(waits().size(), size_t{kLongWaits});
  EXPECT_EQ(only(), std::pair(int64_t{6}, int64_t{229}));
}

// An idle server works for seconds between pauses of many minutes, and some pauses are short.
TEST_F(RecordWriterTest, LongWaitsWithLittleWorkBetweenThemCount) {
  test.AddCommunicator(0, 1, 0, "waits");
  const auto until_after = [this](uint64_t seconds, uint64_t end) {
    test.Record(0).NoteWait(LastCall::Pack(kAllReduceName, 4), seconds * kSecondNs,
                            end * kSecondNs);
    const ProcessSnapshot read = Read(test.segment());
    return read.communicators.at(0).longest_waits.at(0).counts_until_realtime_ns / kSecondNs;
  };
  until_after(600, 1000);
  EXPECT_EQ(until_after(700, 1701), 1701 + 3 * 701);
  EXPECT_EQ(until_after(60, 1762), 1701 + 3 * 701) << "the next long one is still expected";
}

// Byte by byte, so that a field that is added and not reset is found.
TEST_F(RecordWriterTest, ResetLeavesNothing) {
  const auto memory = std::make_unique<CommunicatorRecord>();
  CommunicatorRecord& record = *memory;
  auto* const bytes = reinterpret_cast<unsigned char*>(&record);
  std::vector<bool> stays(sizeof(record));
  const auto keep = [&](const void* from, size_t size) {
    const auto begin = static_cast<size_t>(static_cast<const unsigned char*>(from) - bytes);
    for (size_t i = begin; i < begin + size; ++i) stays[i] = true;
  };
  keep(&record.life, sizeof(record.life));
  for (Lane& lane : record.lanes) {
    keep(&lane.claim, sizeof(lane.claim));
    keep(&lane.reserved0, sizeof(lane.reserved0));
    keep(&lane.reserved1, sizeof(lane.reserved1));
  }
  keep(&record.followed.reserved, sizeof(record.followed.reserved));
  memset(bytes, 0xff, sizeof(record));  // NOLINT(bugprone-undefined-memory-manipulation)
  record.Reset();
  for (size_t at = 0; at < sizeof(record); ++at) {
    ASSERT_EQ(bytes[at], stays[at] ? 0xff : 0) << "byte " << at;
  }
}

// What a reader is shown of the second communicator on a place is what it is shown of a first one.
TEST_F(RecordWriterTest, TheNextCommunicatorStartsFromZero) {
  const uint32_t first = test.AddCommunicator(0, 1, 0, "first with a long name");
  FillEverything(test, 0, first);
  {
    const CommunicatorSnapshot full = Read(test.segment()).communicators.at(0);
    EXPECT_TRUE(full.captured);
    EXPECT_EQ(full.timed_calls.size(), 2u);
    EXPECT_EQ(full.calls.size(), 2u);
    EXPECT_EQ(full.longest_waits.size(), size_t{kLongWaits});
    EXPECT_EQ(full.driver_error, 700u);
    EXPECT_NE(full.network_moved_realtime_ns, 0);
    EXPECT_EQ(full.kernel_trust, TrustState::kSelfSend);
  }
  const uint32_t free_chunks = test.segment().chunks().free_chunks();
  const uint32_t second = test.AddCommunicator(0, 2, 1, "second");
  EXPECT_NE(second, first);
  const CommunicatorSnapshot read = Read(test.segment()).communicators.at(0);
  EXPECT_EQ(read.comm_id, 2u);
  EXPECT_EQ(read.rank, 1);
  EXPECT_EQ(read.name, "second");
  EXPECT_TRUE(read.calls.empty());
  EXPECT_TRUE(read.latencies.empty());
  EXPECT_TRUE(read.timed_calls.empty());
  EXPECT_FALSE(read.captured);
  EXPECT_FALSE(read.has_heartbeat);
  EXPECT_EQ(read.launches, 0u);
  EXPECT_EQ(read.launches_completed, 0u);
  EXPECT_EQ(read.last_call_op, "");
  EXPECT_EQ(read.kernel_trust, TrustState::kTrusted);
  EXPECT_EQ(read.overflowed_operations, 0u);
  EXPECT_EQ(read.overflowed_calls, 0u);
  EXPECT_EQ(read.unreported_calls, 0u);
  EXPECT_FALSE(read.are_unreported_in_group);
  EXPECT_EQ(read.unreported_since_realtime_ns, 0);
  EXPECT_TRUE(read.longest_waits.empty());
  EXPECT_EQ(read.driver_error, 0u);
  EXPECT_EQ(read.network_moved_realtime_ns, 0);
  EXPECT_EQ(read.last_launch_realtime_ns, 0);
  EXPECT_EQ(read.last_completion_realtime_ns, 0);
  EXPECT_EQ(read.network_bytes, (std::array<uint64_t, kNetworkDirections>{}));
  EXPECT_EQ(read.network_wait_ns, (std::array<uint64_t, kNetworkWaits>{}));
  EXPECT_EQ(test.segment().header().series_used, 0u);
  EXPECT_EQ(test.segment().chunks().free_chunks(), free_chunks + 4) << "two of each lane";
  // And a number of its own.
  test.Record(0).AppendTimedCall({kAllGatherName, LatencyKind::kDurationStream, 1, 0, 10, 500, 9});
  ASSERT_EQ(Read(test.segment()).communicators.at(0).timed_calls.size(), 1u);
}

// Counters of the process go on over all communicators that there ever were.
TEST_F(RecordWriterTest, WhatARecycledOneCountedStaysInTheSums) {
  const NameId future = test.Intern("AllFuture");
  std::map<std::string, std::pair<uint64_t, uint64_t>> expected;
  uint64_t callbacks = 0;
  for (uint64_t round = 1; round <= 3; ++round) {
    const uint32_t generation = test.AddCommunicator(0, round, 0, "c");
    for (LaneRole role : {LaneRole::kLaunch, LaneRole::kBackground}) {
      LaneWriter lane = test.Writer(0, generation, role);
      lane.Count(CallsKey(kAllReduceName, 1), round, 100 * round);
      lane.Count(CallsKey(kAllReduceName, 2), round, 1000 * round);
      lane.Count(CallsKey(future, 2), 1, 7);
      lane.Count(SeriesKey::Uncompleted(kAllReduceName), 50, 0);
      lane.lane().overflowed_calls.publish_sum(2);
      lane.lane().overflowed_bytes.publish_sum(20);
      lane.lane().callbacks[static_cast<int>(CallbackKind::kApi)].publish_sum(4);
    }
    expected["AllReduce"].first += 4 * round;
    expected["AllReduce"].second += 2200 * round;
    expected["other"].first += 2 + 4;  // unknown names, and what overflowed
    expected["other"].second += 14 + 40;
    callbacks += 2 * 4;
  }
  test.Record(0).Finalize(1);
  ASSERT_TRUE(test.Record(0).Recycle());
  const ProcessSnapshot read = Read(test.segment());
  EXPECT_EQ(read.recycled_communicators, 3u);
  EXPECT_EQ(read.callbacks[static_cast<size_t>(CallbackKind::kApi)], callbacks);
  std::map<std::string, std::pair<uint64_t, uint64_t>> sums;
  for (const RecycledCallsSnapshot& calls : read.recycled_calls) {
    sums[calls.op] = {calls.calls, calls.bytes};
  }
  EXPECT_EQ(sums, expected);
}

// Its holder would write into the next communicator. Once it has let go, the record can be
// recycled.
TEST_F(RecordWriterTest, ABusyLaneKeepsItsRecord) {
  const uint32_t generation = test.AddCommunicator(0, 1, 0, "kept");
  CommunicatorRecord& record = test.segment().record(0);
  {
    LaneWriter held = test.Writer(0, generation, LaneRole::kBackground);
    held.Count(CallsKey(kAllReduceName, 1), 3, 300);
    test.Record(0).Finalize(5);
    EXPECT_FALSE(test.Record(0).Recycle());
    held.Count(CallsKey(kAllReduceName, 1), 4, 400);
  }
  const ProcessSnapshot read = Read(test.segment());
  ASSERT_EQ(read.communicators.size(), 1u);
  EXPECT_EQ(read.communicators[0].name, "kept");
  EXPECT_TRUE(read.communicators[0].finalized);
  ASSERT_EQ(read.communicators[0].calls.size(), 1u);
  EXPECT_EQ(read.communicators[0].calls[0].calls, 7u);
  EXPECT_EQ(read.recycled_communicators, 0u);
  EXPECT_TRUE(read.recycled_calls.empty());
  for (const Lane& lane : record.lanes) EXPECT_FALSE(lane.claim.is_held());
  EXPECT_EQ(test.segment().header().recycle_epoch.Enter() % 2, 0u);
}

TEST_F(RecordWriterTest, NobodyWritesWithAnOldGeneration) {
  const uint32_t generation = test.AddCommunicator(0, 1, 0, "c");
  test.Record(0).Finalize(1);
  EXPECT_TRUE(test.Writer(0, generation, LaneRole::kLaunch).ok()) << "what is settled last";
  ASSERT_TRUE(test.Record(0).Recycle());
  EXPECT_FALSE(test.Writer(0, generation, LaneRole::kLaunch).ok());
}

TEST_F(RecordWriterTest, TheFirstReasonOfDistrustHolds) {
  test.AddCommunicator(0, 1, 0, "c");
  test.Record(0).Distrust(TrustState::kSelfSend);
  test.Record(0).Distrust(TrustState::kChecksFailed);
  EXPECT_EQ(Read(test.segment()).communicators.at(0).kernel_trust, TrustState::kSelfSend);
}

TEST_F(RecordWriterTest, ACompletionSourceThatSomebodyElseChangedStays) {
  test.AddCommunicator(0, 1, 0, "c");
  RecordWriter record = test.Record(0);
  EXPECT_TRUE(record.ChangeCompletionSource(CompletionSource::kNone, CompletionSource::kProxy));
  EXPECT_FALSE(record.ChangeCompletionSource(CompletionSource::kStream, CompletionSource::kNone));
  EXPECT_EQ(record.completion_source(), CompletionSource::kProxy);
}

}  // namespace
}  // namespace nccl_pulse
