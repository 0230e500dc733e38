#include "exporter/diagnosis/stragglers/straggler.h"

#include <algorithm>
#include <numeric>
#include <random>

#include "exporter/diagnosis/diagnosis.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/exporter/diagnosis/hang_job.h"

namespace nccl_pulse {
namespace {

// A job that is looked at now and then, as Prometheus does.
class Watched {
 public:
  // All processes are ranks of kComm.
  explicit Watched(int processes, int nranks = 0, int nnodes = 1) : job(processes) {
    std::vector<int> all(processes);
    std::iota(all.begin(), all.end(), 0);
    job.AddCommunicator(kComm, all, nranks, nnodes);
  }

  CommunicatorDiagnosis Look(uint64_t id = kComm) {
    for (const CommunicatorDiagnosis& each : diagnosis.Update(job.Set(), job.now())) {
      stragglers += each.straggler ? 1 : 0;
      hangs += each.hang ? 1 : 0;
      if (each.comm_id == id) found = each;
    }
    return found;
  }
  // At a scrape of 5 s.
  void LookIfDue() {
    if (job.now() < due) return;
    due = job.now() + 5 * kSecond;
    Look();
  }
  double Loss(int rank) {
    for (const RankLoss& loss : Look().losses) {
      if (loss.rank == rank) return loss.seconds;
    }
    return -1;
  }

  SimulatedJob job;
  Diagnosis diagnosis;
  CommunicatorDiagnosis found;
  int stragglers = 0;
  int hangs = 0;
  int64_t due = 0;
};

// Seconds of 100 calls each; one rank comes `late_ns` after the others.
void RunSeconds(Watched* watched, int seconds, int late_rank, int64_t late_ns,
                const std::string& op = "AllReduce", int ranks = 4, bool look = true) {
  for (int i = 0; i < seconds * 100; ++i) {
    std::vector<int64_t> arrivals(ranks, 0);
    arrivals[late_rank] = late_ns;
    watched->job.Collective(kComm, op, arrivals, kMs);
    watched->job.Advance(9 * kMs - late_ns);
    if (look) watched->LookIfDue();
  }
}

struct StragglerTest : testing::Test {
  Watched watched{4};
};

TEST_F(StragglerTest, OneMillisecondACallUntilItIsOver) {
  RunSeconds(&watched, 60, 2, kMs);
  const CommunicatorDiagnosis diagnosis = watched.Look();
  ASSERT_TRUE(diagnosis.straggler);
  EXPECT_EQ(diagnosis.straggler->rank, 2);
  // 100 calls a second, 1 ms each.
  EXPECT_NEAR(diagnosis.straggler->seconds_per_second, 0.1, 0.01);
  EXPECT_NEAR(diagnosis.straggler->mean_seconds, 0.001, 1e-6);
  EXPECT_THAT(diagnosis.straggler->text, HasSubstr("Rank 2 (pid 102, GPU 2) arrives last"));
  const double loss = watched.Loss(2);
  EXPECT_NEAR(loss, 6, 0.6);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(watched.Loss(2), loss);  // each call counts once
  for (const int other : {0, 1, 3}) EXPECT_EQ(watched.Loss(other), 0);
  EXPECT_EQ(watched.hangs, 0);
  RunSeconds(&watched, 120, 2, 0);
  EXPECT_FALSE(watched.Look().straggler);
  EXPECT_NEAR(watched.Loss(2), 6, 0.6);  // what was lost stays lost
}

TEST_F(StragglerTest, OneLookIsEnough) {
  RunSeconds(&watched, 1, 1, kMs, "AllReduce", 4, false);
  ASSERT_TRUE(watched.Look().straggler);
  EXPECT_EQ(watched.found.straggler->rank, 1);
  EXPECT_NEAR(watched.found.straggler->seconds_per_second, 0.1, 0.01);
}

TEST_F(StragglerTest, CallsCountOnceIfTheTimesInAnswersDiffer) {
  RunSeconds(&watched, 10, 2, kMs);
  const double loss = watched.Loss(2);
  watched.job.Of(kComm, 1).init_realtime_ns += 50 * kMs;
  EXPECT_EQ(watched.Loss(2), loss);
}

// An answer is written after the begin of the poll. Calls that have ended meanwhile count at its begin.
TEST_F(StragglerTest, NoShareIsAboveOne) {
  for (int call = 0; call < 32; ++call) {
    watched.job.Collective(kComm, "AllReduce", {0, 0, 90 * kMs, 0}, 10 * kMs);
  }
  const int64_t begin = watched.job.now() - 3 * kSecond;
  const auto result = Diagnosis().Update(watched.job.Set(), begin);
  ASSERT_TRUE(result[0].straggler);
  EXPECT_EQ(result[0].straggler->seconds_per_second, 1);
}

TEST_F(StragglerTest, IsNamedSoonAfterTheClockWasSetBack) {
  RunSeconds(&watched, 10, 2, kMs);
  watched.job.Advance(-3600 * kSecond);
  watched.due = 0;
  RunSeconds(&watched, 60, 1, kMs);
  ASSERT_TRUE(watched.Look().straggler);
  EXPECT_EQ(watched.found.straggler->rank, 1);
  EXPECT_NEAR(watched.found.straggler->seconds_per_second, 0.1, 0.01);
}

// A first look knows 32 s, and nothing of before.
TEST_F(StragglerTest, TheFirstLookSaysTheSameAsOneOfMany) {
  const auto run_second = [this](int64_t late_ns) {
    RunSeconds(&watched, 1, 1, late_ns);
    for (int rank = 0; rank < 4; ++rank) {
      auto& of = watched.job.Of(kComm, rank);
      of.picked_calls.push_back(of.timed_calls.back());
      if (of.picked_calls.size() > 32) of.picked_calls.erase(of.picked_calls.begin());
    }
  };
  for (int second = 0; second < 60; ++second) run_second(0);
  for (int second = 1; second <= 40; ++second) {
    run_second(4 * kMs);
    if (second < 3) continue;
    const std::optional<Straggler> often = watched.Look().straggler;
    const std::optional<Straggler> once =
        Diagnosis().Update(watched.job.Set(), watched.job.now()).at(0).straggler;
    ASSERT_TRUE(often && once) << second;
    EXPECT_NEAR(often->seconds_per_second, 0.4 * std::min(second, 20) / 20, 0.02) << second;
    EXPECT_NEAR(once->seconds_per_second, often->seconds_per_second, 0.005) << second;
    EXPECT_THAT(often->text, HasSubstr("% of the last 20 s."));
    EXPECT_EQ(once->window_seconds, often->window_seconds);
  }
}

// Runs steps of 100 ms in which the ranks arrive as told.
void RunSteps(Watched* watched, int steps, std::vector<int64_t> (*arrivals_of)(int step)) {
  for (int step = 0; step < steps; ++step) {
    const std::vector<int64_t> arrivals = arrivals_of(step);
    watched->job.Collective(kComm, "AllReduce", arrivals, kMs);
    watched->job.Advance(99 * kMs - *std::max_element(arrivals.begin(), arrivals.end()));
    watched->LookIfDue();
  }
}

TEST_F(StragglerTest, SeveralAreNamedThatAreLateByTurns) {
  watched = Watched(8);
  RunSteps(&watched, 600, [](int step) {
    std::vector<int64_t> arrivals(8, 0);
    arrivals[step / 4 % 2 == 0 ? 2 : 5] = 30 * kMs;
    return arrivals;
  });
  ASSERT_TRUE(watched.Look().straggler);
  EXPECT_THAT(watched.found.straggler->ranks, ElementsAre(2, 5));
  EXPECT_THAT(watched.found.straggler->text, HasSubstr("Ranks 2, 5 take turns to arrive last"));
}

TEST_F(StragglerTest, OfThreeNobodyIsNamedForTurnsOfTwo) {
  watched = Watched(3);
  RunSteps(&watched, 600, [](int step) {
    std::vector<int64_t> arrivals(3, 0);
    arrivals[step % 2] = 30 * kMs;
    return arrivals;
  });
  EXPECT_FALSE(watched.Look().straggler);
  EXPECT_NEAR(watched.found.waited_share, 0.3, 0.05);
}

// As where rank 0 hands out the batches.
TEST_F(StragglerTest, NobodyIsNamedForAnOrderOfArrival) {
  for (const int ranks : {3, 4, 8}) {
    watched = Watched(ranks);
    for (int step = 0; step < 600; ++step) {
      std::vector<int64_t> arrivals;
      for (int rank = 0; rank < ranks; ++rank) arrivals.push_back(rank * 3 * kMs);
      watched.job.Collective(kComm, "AllReduce", arrivals, kMs);
      watched.job.Advance(60 * kMs);
      watched.LookIfDue();
    }
    EXPECT_FALSE(watched.Look().straggler) << ranks << " ranks";
  }
}

// Rank 1 leaves each AllGather 2 ms early: it only sends over the slow link. So it comes early to the
// world's call, where it waits.
TEST_F(StragglerTest, WhoIsUpstreamOfASlowLinkIsNotNamed) {
  constexpr uint64_t kWorld = 7;
  watched.job.AddCommunicator(kWorld, {0, 1, 2, 3});
  for (int step = 0; step < 1500; ++step) {
    watched.job.Collective(kComm, "AllGather", {0, 2 * kMs, 0, 0}, 3 * kMs);
    watched.job.Advance(15 * kMs);
    watched.job.Collective(kWorld, "AllReduce", {2 * kMs, 0, 2 * kMs, 2 * kMs}, 100 * kUs);
    watched.LookIfDue();
  }
  EXPECT_FALSE(watched.Look().has_named_straggler());
  EXPECT_FALSE(watched.Look(kWorld).has_named_straggler());
}

// Each rank is late in turn, in a new communicator each time.
TEST_F(StragglerTest, WaitsInAnEarlierCommunicatorExcuseNobody) {
  for (int step = 0; step < 200; ++step) {
    watched.job.Collective(kComm, "AllReduce", {40 * kMs, 0, 0, 0}, kMs);
    watched.LookIfDue();
  }
  constexpr uint64_t kNext = 7;
  watched.job.AddCommunicator(kNext, {0, 1, 2, 3});
  for (int step = 0; step < 200; ++step) {
    watched.job.Collective(kNext, "AllReduce", {0, 40 * kMs, 0, 0}, kMs);
    watched.LookIfDue();
  }
  ASSERT_TRUE(watched.Look(kNext).has_named_straggler());
  EXPECT_EQ(watched.Look(kNext).straggler->rank, 1);
}

TEST_F(StragglerTest, SampledCallsAreScaled) {
  // Ranks whose exponents differ time nested sets.
  const int exponents[] = {2, 3, 1, 2};
  for (int i = 0; i < 4; ++i) watched.job.process(i).sampling_exponent = exponents[i];
  RunSeconds(&watched, 300, 3, kMs);
  EXPECT_NEAR(watched.Loss(3), 30, 3);
  ASSERT_TRUE(watched.found.straggler);
  EXPECT_NEAR(watched.found.straggler->seconds_per_second, 0.1, 0.03);
}

TEST_F(StragglerTest, CallsThatTheRingLostAreCounted) {
  watched = Watched(2);
  watched.Look();
  RunSeconds(&watched, 1, 1, kMs, "AllReduce", 2, false);
  watched.Look();
  RunSeconds(&watched, 100, 1, kMs, "AllReduce", 2, false);  // 10000 calls, 32 of them seen
  EXPECT_NEAR(watched.Loss(1), 10.1, 1.2);
}

TEST_F(StragglerTest, CallNumbersGoRound) {
  watched = Watched(2);
  for (const int rank : {0, 1}) {
    watched.job.Of(kComm, rank).calls = {
        {"AllReduce", 4, "ncclFloat32", false, 0xffffffff - 500, 0}};
  }
  RunSeconds(&watched, 20, 1, kMs, "AllReduce", 2);
  EXPECT_NEAR(watched.Loss(1), 2, 0.3);
}

TEST_F(StragglerTest, OneLongWaitIsNoStragglerAndStandsForNoOther) {
  for (int i = 0; i < 4; ++i) watched.job.process(i).sampling_exponent = 0;
  RunSeconds(&watched, 60, 0, 0);
  const int64_t begin = watched.job.now();
  watched.job.Collective(kComm, "AllReduce", {6 * kSecond, 0, 0, 0}, kMs);  // a checkpoint
  RunSeconds(&watched, 60, 0, 0);
  EXPECT_LE(watched.Loss(0), static_cast<double>(watched.job.now() - begin) / kSecond);
  EXPECT_GT(watched.Loss(0), 5.9);
  EXPECT_EQ(watched.stragglers, 0);
}

// 10 minutes at a scrape of 5 s, with the noise that ranks always have.
// The window has less of the wait than it took.
TEST_F(StragglerTest, AWaitBeforeTheWindowIsNoPartOfIt) {
  RunSeconds(&watched, 60, 2, 2 * kMs);
  watched.job.Collective(kComm, "AllReduce", {0, 0, 32 * kSecond, 0}, kMs);
  RunSeconds(&watched, 5, 2, 2 * kMs);
  const CommunicatorDiagnosis diagnosis = watched.Look();
  ASSERT_TRUE(diagnosis.straggler);
  EXPECT_GT(diagnosis.straggler->seconds_per_second, 0.2);
  EXPECT_LE(diagnosis.straggler->seconds_per_second, 1);
}

TEST_F(StragglerTest, NoneInABalancedJob) {
  watched = Watched(8);
  constexpr uint64_t kTensor[] = {1, 2};  // four ranks each
  watched.job.AddCommunicator(kTensor[0], {0, 1, 2, 3});
  watched.job.AddCommunicator(kTensor[1], {4, 5, 6, 7});
  std::mt19937 random(1);
  std::exponential_distribution<double> jitter(1.0 / (15 * kUs));
  const auto arrivals = [&](int ranks, double scale) {
    std::vector<int64_t> result(ranks);
    for (int64_t& arrival : result) arrival = static_cast<int64_t>(scale * jitter(random));
    return result;
  };
  const int64_t end = watched.job.now() + 600 * kSecond;
  for (int i = 0; watched.job.now() < end; ++i) {
    watched.job.Collective(kTensor[i % 2], "AllReduce", arrivals(4, 1), 200 * kUs);
    watched.job.Advance(3 * kMs);
    if (i % 8 == 0) watched.job.Collective(kComm, "ReduceScatter", arrivals(8, 100), 4 * kMs);
    watched.LookIfDue();
  }
  EXPECT_EQ(watched.stragglers, 0);
  EXPECT_EQ(watched.hangs, 0);
}

// Two ranks, each as likely to be late, by much: nobody's fault.
TEST_F(StragglerTest, NoneAmongTwoThatTakeTurns) {
  watched = Watched(2);
  std::mt19937 random(2);
  std::uniform_int_distribution<int64_t> late(0, 2 * kMs);
  const int64_t end = watched.job.now() + 600 * kSecond;
  while (watched.job.now() < end) {
    watched.job.Collective(kComm, "AllReduce", {late(random), late(random)}, kMs);
    watched.job.Advance(7 * kMs);
    watched.LookIfDue();
  }
  EXPECT_EQ(watched.stragglers, 0);
}

// Stages of a pipeline come to the step's last AllReduce one after the other, by right. Within a
// stage's tensor-parallel group a late rank is a straggler all the same.
TEST_F(StragglerTest, PipelineStagesDifferByRight) {
  constexpr uint64_t kPipeline = 1;
  constexpr uint64_t kTensor = 2;
  watched.job.AddCommunicator(kPipeline, {0, 2});
  watched.job.AddCommunicator(kTensor, {0, 1});
  for (int i = 0; i < 3000; ++i) {
    watched.job.Launch(kPipeline, 0, "Send");
    watched.job.Launch(kPipeline, 1, "Recv");
    watched.job.Complete(kPipeline, 0);
    watched.job.Complete(kPipeline, 1);
    watched.job.Collective(kTensor, "AllReduce", {0, 2 * kMs}, kMs);
    watched.job.Collective(kComm, "AllReduce", {0, 0, 4 * kMs, 5 * kMs}, kMs);
    watched.job.Advance(10 * kMs);
  }
  const CommunicatorDiagnosis all = watched.Look();
  EXPECT_FALSE(all.straggler);
  EXPECT_GT(all.losses[3].seconds, 0);
  const CommunicatorDiagnosis tensor = watched.Look(kTensor);
  ASSERT_TRUE(tensor.straggler);
  EXPECT_EQ(tensor.straggler->rank, 1);
}

// Process 0 is late to its tensor-parallel call; process 1 waits for it there, so both come late to
// their data-parallel calls.
TEST_F(StragglerTest, WhoWaitsForTheSlowOneIsNotNamed) {
  constexpr uint64_t kTensor = 1, kTensor2 = 2, kOfSlow = 3, kOfNeighbour = 4;
  watched.job.AddCommunicator(kTensor, {0, 1});
  watched.job.AddCommunicator(kTensor2, {2, 3});
  watched.job.AddCommunicator(kOfSlow, {0, 2});
  watched.job.AddCommunicator(kOfNeighbour, {1, 3});
  const auto run = [this] {
    for (int i = 0; i < 3000; ++i) {
      watched.job.Collective(kTensor, "AllReduce", {4 * kMs, 0}, kMs);
      watched.job.Collective(kTensor2, "AllReduce", {0, 0}, kMs);
      watched.job.Collective(kOfSlow, "AllReduce", {4 * kMs, 0}, kMs);
      watched.job.Collective(kOfNeighbour, "AllReduce", {4 * kMs, 0}, kMs);
      watched.LookIfDue();
    }
  };
  run();
  EXPECT_TRUE(watched.Look(kTensor).has_named_straggler());
  EXPECT_TRUE(watched.Look(kOfSlow).has_named_straggler());
  const CommunicatorDiagnosis neighbour = watched.Look(kOfNeighbour);
  EXPECT_FALSE(neighbour.has_named_straggler());
  // Nor is it to blame for what the other one waits from now on.
  const double before = neighbour.losses[0].seconds;
  run();
  EXPECT_EQ(watched.Look(kOfNeighbour).losses[0].seconds, before);
  EXPECT_GT(watched.Look(kOfSlow).losses[0].seconds, 3 * before);
}

// Process 0 is slow. Its peer 1 waits for it in tensor-parallel calls of which none is timed, so the
// next stage of 1's pipeline, process 3, is late among its data-parallel peers.
TEST(Straggler, StagesBehindAPeerOfTheSlowOneAreNotNamed) {
  constexpr uint64_t kTensor = 1, kPipeline = 2, kPipelineOfPeer = 3, kOfSlow = 4, kOfStage = 5;
  constexpr int64_t kShort = 10 * kUs;
  Watched watched{6};
  for (int i = 0; i < 6; ++i) watched.job.process(i).hostname = i < 2 ? "node-0" : "node-1";
  watched.job.AddCommunicator(kTensor, {0, 1});
  watched.job.AddCommunicator(kPipeline, {0, 2});
  watched.job.AddCommunicator(kPipelineOfPeer, {1, 3});
  watched.job.AddCommunicator(kOfSlow, {0, 4});
  watched.job.AddCommunicator(kOfStage, {3, 5});
  for (int i = 0; i < 3000; ++i) {
    watched.job.Collective(kTensor, "AllReduce", {0, 0}, kShort);
    for (const uint64_t each : {kPipeline, kPipelineOfPeer}) {
      watched.job.Collective(each, "Send", {0, 0}, kShort);
    }
    watched.job.Collective(kOfSlow, "AllReduce", {6 * kMs, 0}, kShort);
    watched.job.Collective(kOfStage, "AllReduce", {4 * kMs, 0}, kShort);
    watched.LookIfDue();
  }
  EXPECT_TRUE(watched.Look(kOfSlow).has_named_straggler());
  const CommunicatorDiagnosis stage = watched.Look(kOfStage);
  EXPECT_TRUE(stage.straggler);
  EXPECT_FALSE(stage.has_named_straggler());
}

TEST_F(StragglerTest, RanksThatMayLeaveEarlyAreNotCompared) {
  RunSeconds(&watched, 30, 2, kMs, "Broadcast");
  EXPECT_FALSE(watched.Look().straggler);
  EXPECT_EQ(watched.Loss(2), 0);
}

// Four experts. Each launch has a Send to and a Recv from each of the other three, and is known by
// its number; launches of two lengths take turns.
class Exchange {
 public:
  static constexpr int kRanks = 4;

  Exchange() {
    view_.nranks = kRanks;
    view_.has_point_to_point = view_.is_exchange = true;
    view_.ranks.resize(kRanks);
    for (int rank = 0; rank < kRanks; ++rank) {
      CommunicatorSnapshot& communicator = communicators_[rank];
      processes_[rank].nccl_api_version = 5;
      communicator.rank = rank;
      communicator.calls = {{"Send", 4, "", false, 0, 0}, {"Recv", rank, "", false, 0, 0}};
      view_.ranks[rank].process = &processes_[rank];
      view_.ranks[rank].communicator = &communicator;
      view_.ranks[rank].state = RankView::State::kLive;
    }
  }

  CommunicatorSnapshot& of(int rank) { return communicators_[rank]; }

  // Rank 2 is `late_ns` late into each.
  void Run(int64_t late_ns) {
    for (int i = 1; i <= 1000; ++i) {
      const int64_t now_ns = i * 10 * kMs;
      for (int rank = 0; rank < kRanks; ++rank) {
        CommunicatorSnapshot& communicator = communicators_[rank];
        TimedCallSnapshot call;
        call.op = "Grouped";
        call.kind = LatencyKind::kDurationStream;
        call.size_class = rank;
        call.call_number = communicator.launches;
        const int64_t stood_ns = i % 4 == 0 ? kMs : 5 * kMs;
        call.duration_ns = static_cast<uint64_t>(stood_ns + (rank == 2 ? 0 : late_ns));
        call.end_realtime_ns = now_ns;
        ++communicator.launches;
        for (CallCountSnapshot& calls : communicator.calls) {
          if (IsPointToPoint(calls.op)) calls.calls += kRanks - 1;
        }
        auto& ring = communicator.timed_calls;
        ring.push_back(call);
        if (ring.size() > 32) ring.erase(ring.begin());
      }
      RoundsOfProcesses rounds;
      if (i % 100 == 0) state_.Update(view_, now_ns, &rounds);
    }
  }

  std::optional<Straggler> Find() const { return state_.Find(view_); }
  double Lost() const {
    double seconds = 0;
    for (const RankLoss& loss : state_.Losses(view_)) seconds += loss.seconds;
    return seconds;
  }

 private:
  ProcessSnapshot processes_[kRanks];
  CommunicatorSnapshot communicators_[kRanks];
  CommunicatorView view_{};
  StragglerState state_;
};

TEST_F(StragglerTest, LaunchesThatAreExchangesAreCompared) {
  Exchange exchange;
  exchange.Run(kMs);
  ASSERT_TRUE(exchange.Find());
  EXPECT_EQ(exchange.Find()->rank, 2);
  Exchange together;
  together.Run(0);
  EXPECT_FALSE(together.Find());
}

// One launch more, or another number of calls, on one rank: the numbers agree on nothing.
TEST_F(StragglerTest, LaunchesOfSeveralCallsAreNotComparedOtherwise) {
  Exchange cut;
  ++cut.of(2).launches;
  cut.Run(0);
  EXPECT_FALSE(cut.Find());
  EXPECT_EQ(cut.Lost(), 0);
  for (const char* op : {"Send", "Recv"}) {
    for (const bool is_more : {false, true}) {
      Exchange other;
      for (CallCountSnapshot& calls : other.of(1).calls) {
        if (calls.op == op) calls.calls = is_more ? 1 : static_cast<uint64_t>(-1);
      }
      other.Run(kMs);
      EXPECT_EQ(other.Lost(), 0) << op << is_more;
    }
  }
  Exchange captured;
  captured.of(3).captured = true;
  captured.Run(kMs);
  EXPECT_EQ(captured.Lost(), 0);
}

TEST_F(StragglerTest, CollectivesBesideExchangesAreLaunches) {
  for (const uint64_t launches : {6u, 7u, 8u}) {
    Exchange exchange;
    for (int rank = 0; rank < Exchange::kRanks; ++rank) {
      exchange.of(rank).calls.push_back({"AllGather", 0, "", false, 7, 0});
      exchange.of(rank).launches = launches;
    }
    exchange.Run(kMs);
    EXPECT_EQ(exchange.Find().has_value(), launches == 7) << launches;
  }
}

TEST_F(StragglerTest, OneRankOnThisNodeIsComparedWithNobody) {
  watched = Watched(1, 8, 8);
  RunSeconds(&watched, 10, 0, 0, "AllReduce", 1);
  EXPECT_TRUE(watched.Look().losses.empty());
}

TEST_F(StragglerTest, OtherNodesAreMentioned) {
  watched = Watched(2, 16, 8);
  RunSeconds(&watched, 10, 0, kMs, "AllReduce", 2);
  ASSERT_TRUE(watched.Look().straggler);
  EXPECT_THAT(watched.found.straggler->text, HasSubstr("among the ranks of this node"));
}

// The late calls are older than the window, because a hang lasted longer than that.
TEST_F(StragglerTest, WhoIsInTimeAgainIsNotNamedBehindAHang) {
  RunSeconds(&watched, 20, 2, 5 * kMs);
  EXPECT_TRUE(watched.Look().straggler);
  RunSeconds(&watched, 2, 2, 0);
  watched.job.Advance(30 * kSecond);
  RunSeconds(&watched, 1, 2, 0);
  EXPECT_FALSE(watched.Look().straggler);
}

TEST_F(StragglerTest, APauseDoesNotMakeOneInTimeAgain) {
  RunSeconds(&watched, 20, 2, 5 * kMs);
  watched.job.Advance(15 * kSecond);
  EXPECT_TRUE(watched.Look().straggler);
  RunSeconds(&watched, 1, 2, 5 * kMs);
  EXPECT_TRUE(watched.Look().straggler);
}

// However long nobody was late before, and wherever the scrapes fall.
TEST_F(StragglerTest, IsNamedWithinHalfAMinute) {
  for (const int ranks : {2, 4, 8}) {
    for (const int64_t late_ns : {kMs, 8 * kMs}) {
      for (int phase_ms = 0; phase_ms < 5000; phase_ms += 500) {
        watched = Watched(ranks);
        watched.due = watched.job.now() + phase_ms * kMs;
        RunSeconds(&watched, 120, 0, 0, "AllReduce", ranks);
        RunSeconds(&watched, 30, 1, late_ns, "AllReduce", ranks);
        ASSERT_TRUE(watched.found.straggler) << ranks << " ranks, phase " << phase_ms << " ms";
        EXPECT_EQ(watched.found.straggler->rank, 1);
      }
    }
  }
}

TEST_F(StragglerTest, ACommunicatorThatLosesARankGoesOn) {
  watched = Watched(3);
  RunSeconds(&watched, 10, 1, kMs, "AllReduce", 3);
  const double loss = watched.Loss(1);
  watched.job.process(2).end = ProcessEnd::kLost;
  for (int i = 0; i < 10; ++i) EXPECT_EQ(watched.Loss(1), loss);
}

TEST_F(StragglerTest, StateGoesWithTheCommunicator) {
  watched = Watched(2);
  RunSeconds(&watched, 10, 1, kMs, "AllReduce", 2);
  EXPECT_GT(watched.Loss(1), 0);
  watched.diagnosis.Update(SnapshotSet(), watched.job.now());
  const DiagnosisResult result = watched.diagnosis.Update(watched.job.Set(), watched.job.now());
  EXPECT_LT(result[0].losses[1].seconds, 0.1);
}

}  // namespace
}  // namespace nccl_pulse
