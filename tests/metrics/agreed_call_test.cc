// Ranks that share nothing pick the same calls.
#include "metrics/agreed_call.h"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "metrics/testing/test_segment.h"
#include "tests/metrics/segment_reading.h"

namespace nccl_pulse {
namespace {

constexpr uint64_t kComm = 0x5f3759df12345678;
constexpr uint64_t kMs = 1'000'000;
constexpr uint64_t kRound = kAgreedRoundNs;
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

  // By round.
  std::map<int64_t, AgreedCallSnapshot> Agreed() {
    std::map<int64_t, AgreedCallSnapshot> agreed;
    for (const AgreedCallSnapshot& call : Read().agreed_calls) {
      agreed[AgreedRound(call.end_realtime_ns)] = call;
    }
    return agreed;
  }

 private:
  const int64_t offset_ns_;
  TestSegment segment_;
};

uint64_t HashOf(uint32_t call) {
  return CallHash(CallSeed(kComm), OperationRowOf(kAllReduceName), 4, call);
}

// One that times everything, one in four, and one in 64; of each call the same end.
TEST(AgreedCall, RanksThatTimeMoreAndLessHaveTheSame) {
  const std::vector<int> exponents = {0, 2, 6};
  std::vector<Rank> ranks;
  ranks.reserve(exponents.size());
  for (const int exponent : exponents) ranks.emplace_back(1000 * exponent);
  for (int64_t round = 100; round < 120; ++round) {
    for (uint64_t i = 0; i < 3000; ++i) {
      const auto call = static_cast<uint32_t>(round * 3000 + static_cast<int64_t>(i));
      for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
        const uint64_t mask = (uint64_t{1} << exponents[rank]) - 1;
        if ((HashOf(call) & mask) != 0) continue;
        ranks[rank].Time(call, static_cast<uint64_t>(round) * kRound + i * 10 * kMs, rank * kMs);
      }
    }
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      const AgreedCallSnapshot call = ranks[rank].Agreed().at(round);
      EXPECT_EQ(call.id, ranks[0].Agreed().at(round).id);
      EXPECT_EQ(call.kind, kStream);
      EXPECT_EQ(call.duration_ns, rank * kMs);
      if (round > 100) {
        // What is over stands still.
        EXPECT_EQ(ranks[rank].Agreed().at(round - 1).id, ranks[0].Agreed().at(round - 1).id);
      }
    }
  }
}

TEST(AgreedCall, WhoMissedItHasAnother) {
  Rank one(0);
  Rank other(0);
  uint32_t rarest = kSetUpCalls;
  for (uint32_t call = kSetUpCalls; call < 200; ++call) {
    if (IsRarer(HashOf(call), HashOf(rarest))) rarest = call;
  }
  for (uint32_t call = kSetUpCalls; call < 200; ++call) {
    one.Time(call, 5 * kRound + call * kMs);
    if (call != rarest) other.Time(call, 5 * kRound + call * kMs);
  }
  EXPECT_EQ(one.Agreed().at(5).id, AgreedCallId(HashOf(rarest)));
  EXPECT_NE(other.Agreed().at(5).id, one.Agreed().at(5).id);
}

// What does not wait for all ranks, or is no duration, or carries set-up, is not compared.
TEST(AgreedCall, OfWhatWaitsForAllRanksAlone) {
  Rank rank(0);
  rank.Time(0, 7 * kRound);
  rank.Time(1, 7 * kRound);
  rank.Time(9, 7 * kRound, kMs, kGroupedName);
  rank.Time(9, 7 * kRound, kMs, kScatterName);
  rank.Time(9, 7 * kRound, kMs, kAllReduceName, LatencyKind::kCompletionProxy);
  EXPECT_TRUE(rank.Agreed().empty());
  rank.Time(2, 7 * kRound, 3 * kMs, kAllGatherName, LatencyKind::kDurationKernel);
  EXPECT_EQ(rank.Agreed().at(7).duration_ns, 3 * kMs);
  EXPECT_EQ(rank.Agreed().at(7).kind, LatencyKind::kDurationKernel);
}

// A call that is known late does not put a later round's away.
TEST(AgreedCall, OfAnEarlierRound) {
  Rank rank(0);
  rank.Time(5, (kAgreedRounds + 1) * kRound);
  rank.Time(6, kRound);
  ASSERT_EQ(rank.Agreed().size(), 1u);
  EXPECT_EQ(rank.Agreed().begin()->first, kAgreedRounds + 1);
}

// The numbers of the calls that were picked, by the second in which they ended.
std::map<int64_t, uint64_t> Picked(Rank* rank) {
  std::map<int64_t, uint64_t> picked;
  for (const TimedCallSnapshot& call : rank->Read().picked_calls) {
    EXPECT_TRUE(picked.emplace(call.end_realtime_ns / kMomentNs, call.call_number).second);
  }
  return picked;
}

// A hundred calls a second: the ring has those of a third of one. Two ranks that are read at
// different moments have none in common there.
TEST(CallOfAMoment, RanksThatAreReadOneAfterTheOtherHaveTheSame) {
  std::vector<Rank> ranks;
  for (int64_t offset = 0; offset < 3; ++offset) ranks.emplace_back(offset * 1000);
  std::map<int64_t, uint64_t> rarest;
  constexpr uint32_t kCalls = 5000;
  for (uint32_t call = kSetUpCalls; call < kCalls; ++call) {
    const uint64_t end_ns = 90 * kRound + uint64_t{call} * 10 * kMs;
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
