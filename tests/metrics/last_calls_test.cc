// The ring of a communicator's last calls: what is written, what is kept, and that a reader gets no
// mixture. Written by the plugin's own writer.
#include "metrics/last_calls.h"

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "metrics/segment_reader.h"
#include "metrics/testing/test_segment.h"
#include "tests/prelude/threads.h"

namespace nccl_pulse {
namespace {

using Calls = std::vector<LastCallSnapshot>;

constexpr uint64_t kSecond = 1000000000;

class Ring : public TestSegment {
 public:
  explicit Ring(uint32_t entries) : TestSegment(2048, 16, entries) {}

  void Add(uint32_t index, uint64_t comm_id) { AddCommunicator(index, comm_id, 0, "c"); }
  LastCalls& Writer(uint32_t index) {
    LastCalls& calls = *writers_.emplace_back(std::make_unique<LastCalls>());
    calls.Begin(segment(), segment().record(index));
    return calls;
  }
  CommunicatorSnapshot Read(uint64_t comm_id) {
    return Read(comm_id, {ReadWish::LastCalls::kOfOne, comm_id});
  }
  CommunicatorSnapshot Read(uint64_t comm_id, const ReadWish& wish) {
    ProcessSnapshot snapshot;
    std::string error;
    EXPECT_TRUE(
        ReadSegment(segment().base(), segment().bytes(), &snapshot, &error, {}, nullptr, wish))
        << error;
    for (const CommunicatorSnapshot& each : snapshot.communicators) {
      if (each.comm_id == comm_id) return each;
    }
    return {};
  }

 private:
  std::vector<std::unique_ptr<LastCalls>> writers_;
};

LastCallFields AllReduce(uint64_t bytes, uint32_t flags = LastCallBits::kCollective) {
  LastCallFields call{};
  call.op = kAllReduceName;
  call.flags = flags;
  call.bytes = bytes;
  return call;
}

TEST(LastCalls, WhatACallWas) {
  Ring ring(64);
  ring.Add(0, 7);
  EXPECT_TRUE(ring.Read(7).last_calls->empty());
  LastCalls& calls = ring.Writer(0);
  LastCallFields call = AllReduce(4096, LastCallBits::kCollective | LastCallBits::kKindNumbered);
  call.datatype = kAllGatherName;  // a name like any other
  call.kind_number = 17;
  call.stream = reinterpret_cast<void*>(0x7f0012340);
  calls.Note(call, 1);
  calls.NoteLaunch(3 * kSecond, 1);
  calls.Note(AllReduce(uint64_t{1} << 60, LastCallBits::kCaptured), 2);
  const CommunicatorSnapshot read = ring.Read(7);
  EXPECT_EQ(read.last_calls_kept, 64u);
  const Calls& last = *read.last_calls;
  ASSERT_EQ(last.size(), 2u);
  EXPECT_EQ(last[0].number, 1u);
  EXPECT_EQ(last[0].collective_number, 1u);
  EXPECT_EQ(last[0].op, "AllReduce");
  EXPECT_EQ(last[0].datatype, "AllGather");
  EXPECT_EQ(last[0].bytes, 4096u);
  EXPECT_EQ(last[0].kind_number, 17u);
  EXPECT_NE(last[0].stream_tag, 0u);
  EXPECT_FALSE(last[0].captured);
  EXPECT_NEAR(static_cast<double>(last[0].launch_realtime_ns), 3e9, 1024);
  EXPECT_EQ(last[0].launch, 1u);
  EXPECT_EQ(last[1].number, 2u);
  EXPECT_EQ(last[1].collective_number, 0u) << "not said to be one";
  EXPECT_EQ(last[1].bytes, LastCallBits::kMostBytes) << "as much as there is room for";
  EXPECT_FALSE(last[1].kind_number.has_value());
  EXPECT_EQ(last[1].stream_tag, 0u);
  EXPECT_TRUE(last[1].captured);
  EXPECT_EQ(last[1].launch_realtime_ns, 0);
}

TEST(LastCalls, TheLastOnesAreKept) {
  for (const uint32_t entries : {64u, 256u, 512u}) {
    Ring ring(entries);
    ring.Add(0, 7);
    LastCalls& calls = ring.Writer(0);
    const uint32_t made = 3 * entries + 17;
    for (uint32_t i = 1; i <= made; ++i) calls.Note(AllReduce(i), i);
    const CommunicatorSnapshot read = ring.Read(7);
    ASSERT_EQ(read.last_calls->size(), entries);
    for (uint32_t i = 0; i < entries; ++i) {
      const LastCallSnapshot& call = (*read.last_calls)[i];
      ASSERT_EQ(call.number, made - entries + 1 + i);
      ASSERT_EQ(call.bytes, call.number);
      ASSERT_EQ(call.collective_number, call.number);
    }
  }
}

TEST(LastCalls, ALaunchCarriesTheLastGroup) {
  Ring ring(64);
  ring.Add(0, 7);
  LastCalls& calls = ring.Writer(0);
  calls.Note(AllReduce(1), 1);  // its launch is not reported
  for (int i = 0; i < 3; ++i) calls.Note(AllReduce(2), 2);
  calls.NoteLaunch(5 * kSecond, 1);
  calls.NoteLaunch(6 * kSecond, 2);  // the rest of the group
  calls.Note(AllReduce(3, LastCallBits::kCaptured), 3);
  calls.ForgetLaunch();
  calls.NoteLaunch(7 * kSecond, 3);  // whatever this is, it does not carry what was captured
  const CommunicatorSnapshot read = ring.Read(7);
  const Calls& last = *read.last_calls;
  ASSERT_EQ(last.size(), 5u);
  EXPECT_EQ(last[0].launch_realtime_ns, 0);
  for (int i = 1; i <= 3; ++i) {
    EXPECT_NEAR(static_cast<double>(last[i].launch_realtime_ns), 5e9, 1024) << i;
    EXPECT_EQ(last[i].is_of_group, i > 1) << i;
  }
  EXPECT_EQ(last[4].launch_realtime_ns, 0);
}

// The entry that waits is kept by its address: it may be the last one of a chunk, and a group may
// begin on one chunk and end on the next.
TEST(LastCalls, LaunchesAtTheEndOfAChunk) {
  Ring ring(256);
  ring.Add(0, 7);
  LastCalls& calls = ring.Writer(0);
  uint64_t group = 0;
  for (uint32_t i = 1; i <= 4 * 256; ++i) {
    calls.Note(AllReduce(i), ++group);
    calls.NoteLaunch(i * kSecond, i);
  }
  for (uint32_t i = 0; i < 62; ++i) calls.Note(AllReduce(1), ++group);
  for (uint32_t i = 0; i < 5; ++i) calls.Note(AllReduce(2), 9999);
  calls.NoteLaunch(5000 * kSecond, 7);
  const CommunicatorSnapshot read = ring.Read(7);
  const Calls& last = *read.last_calls;
  ASSERT_EQ(last.size(), 256u);
  for (const LastCallSnapshot& call : last) {
    const uint64_t launched = call.number <= 1024 ? call.number : call.bytes == 2 ? 5000 : 0;
    EXPECT_NEAR(static_cast<double>(call.launch_realtime_ns),
                static_cast<double>(launched * kSecond), 1024)
        << call.number;
  }
}

TEST(LastCalls, AGroupThatIsLargerThanTheRing) {
  Ring ring(64);
  ring.Add(0, 7);
  LastCalls& calls = ring.Writer(0);
  for (int i = 0; i < 1000; ++i) calls.Note(AllReduce(2), 2);
  calls.NoteLaunch(5 * kSecond, 1);
  const CommunicatorSnapshot read = ring.Read(7);
  ASSERT_EQ(read.last_calls->size(), 64u);
  for (const LastCallSnapshot& call : *read.last_calls) EXPECT_NE(call.launch_realtime_ns, 0);
}

TEST(LastCalls, NoneIsKeptWhereNoneIsWanted) {
  Ring ring(0);
  ring.Add(0, 7);
  LastCalls& calls = ring.Writer(0);
  calls.Note(AllReduce(1), 1);
  calls.NoteLaunch(kSecond, 1);
  const CommunicatorSnapshot read = ring.Read(7);
  EXPECT_EQ(read.last_calls_kept, 0u);
  EXPECT_EQ(read.last_calls, nullptr);
}

// The order of the calls is for hangs: where work in flight has not progressed.
TEST(LastCalls, TheirOrderWhereWorkStands) {
  Ring ring(64);
  ring.Add(0, 7);
  LastCalls& calls = ring.Writer(0);
  RecordWriter record = ring.Record(0);
  const auto order_of = [&](int64_t standing_since_ns) {
    ReadWish wish;
    wish.order_of_stalled_since_ns = standing_since_ns;
    const CommunicatorSnapshot read = ring.Read(7, wish);
    EXPECT_EQ(read.last_calls, nullptr) << "they are not asked for";
    return read.call_order;
  };
  for (uint64_t i = 1; i <= 3; ++i) {
    calls.Note(AllReduce(i), i);
    calls.NoteLaunch(i * kSecond, i);
    record.CountFollowedLaunch(i * kSecond, true);
  }
  EXPECT_TRUE(order_of(60 * kSecond).calls.empty()) << "nothing is in flight";
  record.ChangeCompletionSource(record.completion_source(), CompletionSource::kStream);
  record.StoreHeartbeat({2, 3 * kSecond, OldestLaunch::kBegun});
  EXPECT_TRUE(order_of(0).calls.empty());
  EXPECT_TRUE(order_of(3 * kSecond - 1).calls.empty());
  const CallOrderSnapshot order = order_of(3 * kSecond);
  EXPECT_EQ(order.first, 1u);
  EXPECT_EQ(order.calls, std::string("\2\1\0", 3));
  EXPECT_EQ(order.in_flight, 3u);
  ASSERT_EQ(order.kinds.size(), 3u);
  EXPECT_EQ(order.kinds[0].op, "AllReduce");
  EXPECT_EQ(order.kinds[0].bytes, 3u);
  // Its root leaves a Broadcast while the others may wait in it.
  record.StoreHeartbeat({3, 0, OldestLaunch::kUnknown});
  record.NoteCall(kAllReduceName, 0);
  EXPECT_TRUE(order_of(60 * kSecond).calls.empty());
  record.NoteCall(kBroadcastName, 0);
  EXPECT_FALSE(order_of(60 * kSecond).calls.empty());
  EXPECT_TRUE(order_of(3 * kSecond - 1).calls.empty());
  record.Finalize(1);
  EXPECT_TRUE(order_of(60 * kSecond).calls.empty());
}

// Also of ranks without work in flight, and without a ring.
TEST(LastCalls, CallsByPeerWhereNothingProgresses) {
  Ring ring(0);
  ring.Add(0, 7);
  PeerCallTable& table = ring.segment().record(0).peer_calls;
  const auto read = [&](int64_t stalled_since_ns) {
    ReadWish wish;
    wish.order_of_stalled_since_ns = stalled_since_ns;
    return ring.Read(7, wish).peer_calls;
  };
  ring.Record(0).CountFollowedLaunch(3 * kSecond, true);
  for (uint64_t i = 1; i <= 300; ++i) {
    table.Add(PeerCalls::Whom(8191, false), i, i == 290 ? kOtherName : kNoName);
  }
  for (int peer = 0; peer < 20; ++peer) table.Add(PeerCalls::Whom(peer, true), 5, kOtherName);
  table.Add(PeerCalls::Whom(0, true), PeerCallsSnapshot::kBytesMask, kOtherName);
  EXPECT_TRUE(read(0).empty());
  EXPECT_TRUE(read(3 * kSecond - 1).empty()) << "it makes progress";
  const std::vector<PeerCallsSnapshot> calls = read(3 * kSecond);
  ASSERT_EQ(calls.size(), size_t{PeerCallTable::kPeers});
  EXPECT_EQ(calls[0].peer, 8191);
  EXPECT_FALSE(calls[0].receives);
  EXPECT_EQ(calls[0].calls, 300u);
  EXPECT_EQ(calls[0].datatype, "") << "they differ";
  ASSERT_EQ(calls[0].totals.size(), size_t{PeerCalls::kKept});
  for (uint64_t i = 0; i < PeerCalls::kKept; ++i) {
    const uint64_t number = 300 - i;
    EXPECT_EQ(calls[0].totals[PeerCalls::kKept - 1 - i], number * (number + 1) / 2) << number;
  }
  EXPECT_EQ(calls[1].peer, 0);
  EXPECT_TRUE(calls[1].receives);
  EXPECT_EQ(calls[1].totals, std::vector<uint64_t>({5, 4})) << "modulo 2^48";
  table.peers[1].sums[0].store(PeerCalls::Sum(77, 0, 15));  // overwritten during the read
  EXPECT_EQ(read(3 * kSecond)[1].totals, std::vector<uint64_t>({4}));
  ring.Record(0).Finalize(1);
  EXPECT_TRUE(read(3 * kSecond).empty());
}

// What rings take is bounded for the process. What is given back is used again, and is empty.
TEST(LastCalls, CommunicatorsBeyondTheRoomHaveNone) {
  Ring ring(256);
  constexpr uint32_t kRoom = kMostLastCallChunks / (256 / kLastCallsPerChunk);
  static_assert(kRoom * 256 * sizeof(LastCallEntry) == 512 << 10,
                "what docs/compatibility.md says");
  for (uint32_t i = 0; i <= kRoom; ++i) {
    EXPECT_EQ(RecordWriter::HasRoomForLastCalls(ring.segment()), i < kRoom);
    ring.Add(i, i + 1);
    EXPECT_EQ(ring.Read(i + 1).last_calls_kept, i < kRoom ? 256u : 0u) << i;
  }
  LastCalls& calls = ring.Writer(3);
  for (int i = 0; i < 300; ++i) calls.Note(AllReduce(9), 1);
  ring.Record(3).Finalize(1);
  ASSERT_TRUE(ring.Record(3).Recycle());
  EXPECT_TRUE(RecordWriter::HasRoomForLastCalls(ring.segment()));
  ring.Add(3, 1000);
  EXPECT_TRUE(ring.Read(1000).last_calls->empty());
}

// Calls, launches and the end of the communicator from several threads, against NCCL's rules: what
// is in the ring may be wrong then, and what lies beside it is as it was.
TEST(LastCalls, ThreadsAgainstTheRulesWriteIntoRingsAlone) {
  Ring ring(64);
  ring.Add(0, 7);
  ring.Add(1, 8);
  const uint16_t beside = ring.segment().chunks().Allocate();
  ASSERT_NE(beside, kNoChunk);
  LastCalls& calls = ring.Writer(0);
  std::atomic<bool> stop{false};
  Threads writers(3, [&](int) {
    while (!stop.load(std::memory_order_relaxed)) {
      for (int call = 0; call < 3; ++call) calls.Note(AllReduce(9), 1);
      calls.NoteLaunch(kSecond, 1);
    }
  });
  for (int round = 0; round < 2000; ++round) {
    calls.Close();
    ring.Record(0).Finalize(1);
    if (round % 2 == 0) ring.Record(0).GiveUpLastCalls();
    ASSERT_TRUE(ring.Record(0).Recycle());
    ring.Add(0, 7);
    calls.Begin(ring.segment(), ring.segment().record(0));
  }
  stop = true;
  writers.Join();
  EXPECT_TRUE(ring.Read(8).last_calls->empty());
  const uint8_t* bytes = reinterpret_cast<const uint8_t*>(&ring.segment().counters(beside));
  for (uint32_t i = 0; i < kChunkBytes; ++i) ASSERT_EQ(bytes[i], 0) << i;
}

}  // namespace
}  // namespace nccl_pulse
