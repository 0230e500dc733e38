// Ranks that share nothing pick the same calls.
#include "metrics/agreed_call.h"

#include <cstdint>
#include <map>
#include <vector>

#include "gtest/gtest.h"
#include "metrics/testing/test_segment.h"
#include "tests/metrics/segment_reading.h"

namespace nccl_pulse {
namespace {

constexpr uint64_t kComm = 0x5f3759df12345678;
constexpr uint64_t kMs = 1'000'000;
constexpr auto kStream = LatencyKind::kDurationStream;

// A rank's record. Its process started at another time than the others', so its monotonic clock
// differs.
class Rank {
 public:
  explicit Rank(int64_t offset_ns) : offset_ns_(offset_ns) {
    segment_.segment().WritableHeader().realtime_offset_ns.store(offset_ns);
    segment_.AddCommunicator(0, kComm, 0, "c");
  }

  void Time(uint32_t call, uint64_t end_realtime_ns, uint64_t duration_ns = kMs,
            NameId op = kAllReduceName, LatencyKind kind = kStream) {
    segment_.Record(0).AppendTimedCall(
        {op, kind, 4, call, 100, duration_ns, end_realtime_ns - static_cast<uint64_t>(offset_ns_)});
  }

  CommunicatorSnapshot Read() { return ::nccl_pulse::Read(segment_.segment()).communicators.at(0); }

 private:
  const int64_t offset_ns_;
  TestSegment segment_;
};

uint64_t HashOf(uint32_t call) {
  return CallHash(CallSeed(kComm), OperationRowOf(kAllReduceName), 4, call);
}

// The numbers of the calls that were picked, by the second in which they ended.
std::map<int64_t, uint64_t> Picked(Rank* rank) {
  std::map<int64_t, uint64_t> picked;
  for (const TimedCallSnapshot& call : rank->Read().picked_calls) {
    EXPECT_TRUE(picked.emplace(call.end_realtime_ns / kMomentNs, call.call_number).second);
  }
  return picked;
}

// A call that waits for no other rank, that is no duration, or that carries set-up is not kept.
TEST(CallOfAMoment, OnlyOfCallsThatWaitForAllRanks) {
  Rank rank(0);
  const auto fill = [&rank] {  // the ring of last calls
    for (uint32_t call = 100; call < 132; ++call) rank.Time(call, 20 * kMomentNs);
  };
  rank.Time(0, 7 * kMomentNs);
  rank.Time(1, 8 * kMomentNs);
  rank.Time(9, 9 * kMomentNs, kMs, kGroupedName);
  rank.Time(9, 10 * kMomentNs, kMs, kScatterName);
  rank.Time(9, 11 * kMomentNs, kMs, kAllReduceName, LatencyKind::kCompletionProxy);
  fill();
  EXPECT_TRUE(Picked(&rank).empty());
  rank.Time(2, 12 * kMomentNs, 3 * kMs, kAllGatherName, LatencyKind::kDurationKernel);
  fill();
  std::map<int64_t, uint64_t> picked = Picked(&rank);
  picked.erase(20);
  EXPECT_EQ(picked, (std::map<int64_t, uint64_t>{{12, 2}}));
}

TEST(CallOfAMoment, ARankThatMissedItHasAnother) {
  Rank one(0);
  Rank other(0);
  uint32_t rarest = kSetUpCalls;
  for (uint32_t call = kSetUpCalls; call < 200; ++call) {
    if (IsRarer(HashOf(call), HashOf(rarest))) rarest = call;
  }
  for (uint32_t call = kSetUpCalls; call < 200; ++call) {
    one.Time(call, 5 * kMomentNs + call * kMs);
    if (call != rarest) other.Time(call, 5 * kMomentNs + call * kMs);
  }
  for (uint32_t call = 200; call < 232; ++call) {
    one.Time(call, 6 * kMomentNs);
    other.Time(call, 6 * kMomentNs);
  }
  EXPECT_EQ(Picked(&one).at(5), rarest);
  EXPECT_NE(Picked(&other).at(5), rarest);
}

// A call that is known late does not replace one of a later turn of the ring.
TEST(CallOfAMoment, KeepsTheLaterTurn) {
  Rank rank(0);
  rank.Time(5, (kMoments + 1) * kMomentNs);
  rank.Time(6, kMomentNs);
  for (uint32_t call = 100; call < 132; ++call) rank.Time(call, (kMoments + 2) * kMomentNs);
  EXPECT_EQ(Picked(&rank), (std::map<int64_t, uint64_t>{{kMoments + 1, 5}}));
}

// A hundred calls a second: the ring has those of a third of one. Two ranks that are read at
// different moments have none in common there.
TEST(CallOfAMoment, RanksThatAreReadOneAfterTheOtherHaveTheSame) {
  std::vector<Rank> ranks;
  for (int64_t offset = 0; offset < 3; ++offset) ranks.emplace_back(offset * 1000);
  std::map<int64_t, uint64_t> rarest;
  constexpr uint32_t kCalls = 5000;
  for (uint32_t call = kSetUpCalls; call < kCalls; ++call) {
    const uint64_t end_ns = 2700 * kMomentNs + uint64_t{call} * 10 * kMs;
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      // The second times one in four; the third is read a second before the others.
      if (rank == 1 && (HashOf(call) & 3) != 0) continue;
      if (rank == 2 && call >= kCalls - 100) continue;
      ranks[rank].Time(call, end_ns);
    }
    const auto [at, is_first] = rarest.emplace(end_ns / kMomentNs, call);
    if (!is_first && IsRarer(HashOf(call), HashOf(static_cast<uint32_t>(at->second)))) {
      at->second = call;
    }
  }
  for (Rank& rank : ranks) {
    EXPECT_EQ(rank.Read().timed_calls.size(), 32u);
    const std::map<int64_t, uint64_t> picked = Picked(&rank);
    // That of the last second may still be in the ring.
    EXPECT_GE(picked.size(), kMoments - 1u);
    EXPECT_LE(picked.size(), static_cast<std::size_t>(kMoments));
    for (const auto& [moment, call] : picked) EXPECT_EQ(call, rarest.at(moment));
  }
}

TEST(CallOfAMoment, IsNotToldTwiceNorForEver) {
  Rank rank(0);
  rank.Time(2, 100 * kMomentNs);
  rank.Time(3, 101 * kMomentNs);
  EXPECT_EQ(rank.Read().timed_calls.size(), 2u);
  EXPECT_TRUE(Picked(&rank).empty()) << "they are the last calls";
  // The others of these seconds, later, put them out of the ring.
  for (uint32_t call = 4; call < 40; ++call) rank.Time(call, 131 * kMomentNs);
  EXPECT_EQ(Picked(&rank), (std::map<int64_t, uint64_t>{{100, 2}, {101, 3}}));
  // Nothing takes the place of the first two, but they are too old.
  for (uint32_t call = 40; call < 80; ++call) rank.Time(call, 140 * kMomentNs);
  EXPECT_EQ(Picked(&rank).size(), 1u);
  EXPECT_EQ(Picked(&rank).count(131), 1u);
}

}  // namespace
}  // namespace nccl_pulse
