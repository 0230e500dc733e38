// Stragglers within CUDA graphs: launches that stamps time are compared as others are, where they
// are of the same graph and the same replay.
#include <cstdint>
#include <functional>
#include <optional>

#include "exporter/diagnosis/diagnosis.h"
#include "gtest/gtest.h"
#include "tests/exporter/diagnosis/hang_job.h"

namespace nccl_pulse {
namespace {

constexpr int kRanks = 4;
constexpr int64_t kReplay = 20 * kMs;

struct Timed {
  uint32_t graph;
  uint32_t replay;
  int64_t duration_ns;
};

// Replays for a minute, looked at every 5 s. `timed`: what a rank times of one.
CommunicatorDiagnosis DiagnoseMinute(
    const std::function<std::optional<Timed>(int rank, int replay)>& timed,
    uint32_t captures_of_last = 3) {
  SimulatedJob job(kRanks);
  job.AddCommunicator(kComm, {0, 1, 2, 3});
  for (int rank = 0; rank < kRanks; ++rank) {
    GraphPosition& position = job.Of(kComm, rank).graph_position;
    position.captures = position.followed = rank == kRanks - 1 ? captures_of_last : 3;
  }
  Diagnosis diagnosis;
  CommunicatorDiagnosis found;
  for (int replay = 1; replay <= 60 * kSecond / kReplay; ++replay) {
    job.Advance(kReplay);
    for (int rank = 0; rank < kRanks; ++rank) {
      const std::optional<Timed> one = timed(rank, replay);
      if (!one) continue;
      TimedCallSnapshot call;
      call.op = "AllReduce";
      call.kind = LatencyKind::kDurationGraph;
      call.graph = one->graph;
      call.call_number = one->replay;
      call.duration_ns = static_cast<uint64_t>(one->duration_ns);
      call.end_realtime_ns = job.now();
      auto& ring = job.Of(kComm, rank).timed_calls;
      ring.push_back(call);
      if (ring.size() > 32) ring.erase(ring.begin());
    }
    if (replay % (5 * kSecond / kReplay) == 0) found = diagnosis.Update(job.Set(), job.now()).at(0);
  }
  return found;
}

// Rank 2 comes 2 ms late into one launch of each replay.
int64_t DurationOf(int rank) { return rank == 2 ? 10 * kUs : 2 * kMs; }

TEST(StragglerReplay, IsNamed) {
  const CommunicatorDiagnosis diagnosis = DiagnoseMinute([](int rank, int replay) {
    return Timed{1, static_cast<uint32_t>(replay), DurationOf(rank)};
  });
  ASSERT_TRUE(diagnosis.straggler);
  EXPECT_EQ(diagnosis.straggler->rank, 2);
  // 2 ms of every 20, however few of the replays the ring still had.
  EXPECT_NEAR(diagnosis.straggler->seconds_per_second, 0.1, 0.01);
}

// Each rank's thread looks when it does: a replay in five was timed by all.
TEST(StragglerReplay, RestsOnTheReplaysThatAllTimed) {
  const CommunicatorDiagnosis diagnosis =
      DiagnoseMinute([](int rank, int replay) -> std::optional<Timed> {
        if (replay % 5 != 0 && replay % 4 != rank) return std::nullopt;
        return Timed{1, static_cast<uint32_t>(replay), DurationOf(rank)};
      });
  ASSERT_TRUE(diagnosis.straggler);
  EXPECT_EQ(diagnosis.straggler->rank, 2);
  EXPECT_NEAR(diagnosis.straggler->seconds_per_second, 0.1, 0.02);
}

// 20 s in balance, a hang of 7 s that goes on, 20 s in balance, and then rank 2 is late by 1 ms.
TEST(StragglerReplay, IsNamedSoonAfterALongWait) {
  constexpr int kHang = 20 * kSecond / kReplay;
  const CommunicatorDiagnosis diagnosis = DiagnoseMinute([](int rank, int replay) {
    const int64_t balanced = 10 * kUs + rank * kUs;
    const int64_t duration = replay < kHang                 ? balanced
                             : replay == kHang && rank != 1 ? 7 * kSecond
                             : replay == kHang              ? balanced
                             : replay > 2 * kHang           ? DurationOf(rank) / 2
                                                            : balanced;
    return Timed{1, static_cast<uint32_t>(replay), duration};
  });
  ASSERT_TRUE(diagnosis.straggler);
  EXPECT_EQ(diagnosis.straggler->rank, 2);
}

TEST(StragglerReplay, OtherReplaysAreNotCompared) {
  const CommunicatorDiagnosis diagnosis = DiagnoseMinute([](int rank, int replay) {
    return Timed{1, static_cast<uint32_t>(kRanks * replay + rank), DurationOf(rank)};
  });
  EXPECT_FALSE(diagnosis.straggler);
}

TEST(StragglerReplay, OtherGraphsAreNotCompared) {
  const CommunicatorDiagnosis diagnosis = DiagnoseMinute([](int rank, int replay) {
    return Timed{static_cast<uint32_t>(rank == 2 ? 2 : 1), static_cast<uint32_t>(replay),
                 DurationOf(rank)};
  });
  EXPECT_FALSE(diagnosis.straggler);
}

// Its number 1 may be another's number 2.
TEST(StragglerReplay, RanksThatHaveNotCapturedAlikeAreNotCompared) {
  const CommunicatorDiagnosis diagnosis = DiagnoseMinute(
      [](int rank, int replay) {
        return Timed{1, static_cast<uint32_t>(replay), DurationOf(rank)};
      },
      2);
  EXPECT_FALSE(diagnosis.straggler);
}

}  // namespace
}  // namespace nccl_pulse
