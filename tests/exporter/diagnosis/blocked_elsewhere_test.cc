// Ranks that do not come because they wait in another communicator.
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/exporter/diagnosis/hang_job.h"

namespace nccl_pulse {
namespace {

using testing::Pair;

std::vector<std::pair<uint64_t, int>> Steps(const Hang& hang) {
  std::vector<std::pair<uint64_t, int>> steps;
  for (const CircleStep& step : hang.circle) steps.emplace_back(step.comm_id, step.rank);
  return steps;
}

TEST(Hang, WhoWaitsElsewhereIsNotTheCulprit) {
  // Tensor parallel {0, 1} and {2, 3}, data parallel {1, 3}. Process 3 does not come.
  SimulatedJob job(4);
  constexpr uint64_t kTensor = 1;
  constexpr uint64_t kTensor2 = 2;
  constexpr uint64_t kData = 3;
  job.AddCommunicator(kTensor, {0, 1});
  job.AddCommunicator(kTensor2, {2, 3});
  job.AddCommunicator(kData, {1, 3});
  job.Launch(kData, 0, "AllReduce");
  job.Launch(kTensor, 0, "AllReduce");
  job.Launch(kTensor2, 0, "AllReduce");
  ExpectHang(&job, HangVerdict::kRankNotCalled, {1}, kData);
  const Hang tensor = ExpectHangNow(job, HangVerdict::kBlockedElsewhere, {1}, kTensor);
  EXPECT_THAT(tensor.text, HasSubstr("communicator 0000000000000003"));
  ExpectHangNow(job, HangVerdict::kRankNotCalled, {1}, kTensor2);
}

constexpr uint64_t kOne = 1;
constexpr uint64_t kTwo = 2;

SimulatedJob TwoCommunicators() {
  SimulatedJob job(2);
  job.AddCommunicator(kOne, {0, 1});
  job.AddCommunicator(kTwo, {0, 1});
  return job;
}

// Two communicators, called in another order. The younger wait is part of the hang, so it has the same
// name from the first look on.
TEST(Hang, TwoThatWaitForEachOther) {
  SimulatedJob job = TwoCommunicators();
  job.Launch(kOne, 0, "AllReduce");
  job.Advance(kSecond);
  job.Launch(kTwo, 1, "AllReduce");
  job.Advance(kHangAfter - kSecond);
  const Hang one = ExpectHangNow(job, HangVerdict::kCircularWait, {1}, kOne);
  EXPECT_THAT(Steps(one), ElementsAre(Pair(kOne, 1), Pair(kTwo, 0)));
  EXPECT_EQ(
      one.text,
      "Ranks seem to wait for each other in a circle: rank 1 (pid 101, GPU 1) is missing on "
      "communicator 0000000000000001, and has work in flight on 0000000000000002; rank 0 (pid 100, "
      "GPU 0) is missing on communicator 0000000000000002, and has work in flight on "
      "0000000000000001. They use the communicators in different orders, or one has left out a "
      "call. Their stacks show whether they wait for that work. Rank 0 waits in AllReduce.");
  for (const int64_t later_ns : {int64_t{0}, kSecond}) {
    job.Advance(later_ns);
    const Hang other = ExpectHangNow(job, HangVerdict::kCircularWait, {0}, kTwo);
    EXPECT_THAT(Steps(other), ElementsAre(Pair(kTwo, 0), Pair(kOne, 1)));
  }
}

// Each has posted a Recv ahead, and the host of one is elsewhere: the same as if both waited.
TEST(Hang, PostedAheadIsNoCircle) {
  for (const char* op : {"Recv", "Broadcast"}) {
    SimulatedJob job = TwoCommunicators();
    job.Launch(kOne, 0, op);
    job.Launch(kTwo, 1, op);
    job.Advance(kHangAfter);
    for (const uint64_t id : {kOne, kTwo}) {
      const Hang hang = ExpectHangNow(job, HangVerdict::kUnknown, {}, id);
      EXPECT_THAT(hang.text, HasSubstr("which it may have posted ahead: its stack shows whether "
                                       "it waits there."));
    }
  }
}

// Nor is it if one of them has posted its Recv ahead, and its GPU is behind other work.
TEST(Hang, ReceivedAheadOnAnotherStreamIsNoCircle) {
  SimulatedJob job = TwoCommunicators();
  job.Launch(kTwo, 1, "Recv");
  job.Advance(kMs);
  job.Launch(kOne, 0, "AllReduce");
  job.Launch(kOne, 1, "AllReduce");
  SetBegun(&job, kOne, {kBegun, kNotBegun});
  SetBegun(&job, kTwo, {OldestLaunch::kUnknown, kBegun});
  ExpectHang(&job, HangVerdict::kUnknown, {}, kOne);
  ExpectHangNow(job, HangVerdict::kUnknown, {}, kTwo);
}

// A circle may end: its hosts may have posted their calls ahead.
TEST(Hang, ACircleMayBeUsual) {
  SimulatedJob job = TwoCommunicators();
  job.Of(kOne, 0).longest_waits = {WaitedBefore("AllReduce", 60 * kSecond)};
  job.Launch(kOne, 0, "AllReduce");
  job.Launch(kTwo, 1, "AllReduce");
  EXPECT_TRUE(ExpectHang(&job, HangVerdict::kCircularWait, {1}, kOne).is_usual);
}

// The others have gone on to the AllReduce behind the Broadcast that is still in flight. So the one
// that has not called it does not wait in that Broadcast, whose root is behind the AllReduce.
class PostedAheadByAll : public testing::Test {
 protected:
  static constexpr uint64_t kInput = 1;

  PostedAheadByAll() : job_(RunningJob()) { job_.AddCommunicator(kInput, {0, 1, 2, 3}); }
  void Hang() {
    for (const int rank : {1, 2, 3}) job_.Launch(kInput, rank, "Broadcast");
    job_.Advance(kMs);
    LaunchOn(&job_, {0, 1, 3}, "AllReduce");
    job_.Advance(kHangAfter);
  }

  SimulatedJob job_;
};

TEST_F(PostedAheadByAll, IsNoExcuse) {
  Hang();
  ExpectHangNow(job_, HangVerdict::kRankNotCalled, {2});
  ExpectHangNow(job_, HangVerdict::kBlockedElsewhere, {0}, kInput);
}

// It is at another call of that communicator than they are.
TEST_F(PostedAheadByAll, IsAnExcuseWhereItIsAnotherCall) {
  job_.Of(kInput, 2).launches = job_.Of(kInput, 2).launches_completed = 1;
  Hang();
  ExpectHangNow(job_, HangVerdict::kUnknown, {});
}

// Two stages of two tensor-parallel ranks; a communicator for each direction. Rank 2 has posted its
// Recv as its neighbour 3 has, which has gone on behind it.
TEST(Hang, PostedAheadLikeItsNeighbourIsNoExcuse) {
  SimulatedJob job(4);
  constexpr uint64_t kTensor = 1;
  constexpr uint64_t kForward[] = {2, 3};
  constexpr uint64_t kBackward[] = {4, 5};
  job.AddCommunicator(kTensor, {2, 3});
  for (int i = 0; i < 2; ++i) {
    job.AddCommunicator(kForward[i], {i, 2 + i});
    job.AddCommunicator(kBackward[i], {i, 2 + i});
    job.Launch(kForward[i], 1, "Recv");
    job.Launch(kBackward[i], 0, "Recv");
  }
  job.Advance(kMs);
  job.Launch(kTensor, 1, "AllReduce");
  job.Advance(kMs);
  job.Launch(kBackward[1], 1, "Send");
  SetBegun(&job, kForward[1], {OldestLaunch::kUnknown, kBegun});
  SetBegun(&job, kBackward[1], {kBegun, kNotBegun});
  SetBegun(&job, kTensor, {OldestLaunch::kUnknown, kBegun});
  ExpectHang(&job, HangVerdict::kRankNotCalled, {0}, kTensor);
  ExpectHangNow(job, HangVerdict::kBlockedElsewhere, {0}, kForward[0]);
  ExpectHangNow(job, HangVerdict::kRankNotCalled, {1}, kBackward[0]);
  // What it sends is behind the AllReduce, for which the other one is missing.
  const Hang hang = ExpectHangNow(job, HangVerdict::kBlockedElsewhere, {1}, kBackward[1]);
  EXPECT_THAT(hang.text, HasSubstr("communicator 0000000000000001"));
}

TEST(Hang, ThreeThatWaitForEachOther) {
  SimulatedJob job(3);
  // Process i calls in communicator i first, with the next one; the next one is in its own.
  for (int i = 0; i < 3; ++i) {
    job.AddCommunicator(1 + i, {i, (i + 1) % 3});
  }
  for (int i = 0; i < 3; ++i) job.Launch(1 + i, 0, "AllReduce");
  job.Advance(kHangAfter);
  for (int i = 0; i < 3; ++i) {
    const Hang hang = ExpectHangNow(job, HangVerdict::kCircularWait, {1}, 1 + i);
    EXPECT_THAT(Steps(hang),
                ElementsAre(Pair(1 + i, 1), Pair(1 + (i + 1) % 3, 1), Pair(1 + (i + 2) % 3, 1)));
  }
}

// Who waits for a circle is not in it.
TEST(Hang, BesideACircle) {
  SimulatedJob job(3);
  job.AddCommunicator(1, {0, 1});
  job.AddCommunicator(2, {0, 1});
  job.AddCommunicator(3, {2, 0});
  job.Launch(1, 0, "AllReduce");
  job.Launch(2, 1, "AllReduce");
  job.Launch(3, 0, "AllReduce");
  ExpectHang(&job, HangVerdict::kBlockedElsewhere, {1}, 3);
  ExpectHangNow(job, HangVerdict::kCircularWait, {1}, 1);
}

// One process with two GPUs, as JAX has it, and two communicators: a rank of each does not come.
class TwoGpusOfAProcess : public testing::Test {
 protected:
  TwoGpusOfAProcess() : job_(3) {
    // Process 0 is rank 1 of both, on a GPU each; processes 1 and 2 are rank 0.
    job_.AddCommunicator(1, {1, 0});
    job_.AddCommunicator(2, {0, 2});
    SetGpu(1, 1, "", "");
    SetGpu(2, 0, "", "");
  }
  void SetGpu(uint64_t id, int rank, const std::string& gpu, const std::string& uuid) {
    job_.Of(id, rank).gpu = gpu;
    job_.Of(id, rank).uuid = uuid;
  }
  // Process 0 waits in communicator 2 for process 2, and has not come to communicator 1.
  HangVerdict OfTheFirst() {
    job_.Launch(1, 0, "AllReduce");
    job_.Launch(2, 0, "AllReduce");
    job_.Advance(kHangAfter);
    return HangOf(job_, 1)->verdict;
  }

  SimulatedJob job_;
};

TEST_F(TwoGpusOfAProcess, AreToldApartByUuid) {
  SetGpu(1, 1, "0", "GPU-a");
  SetGpu(2, 0, "0", "GPU-b");
  EXPECT_EQ(OfTheFirst(), HangVerdict::kRankNotCalled);
}

TEST_F(TwoGpusOfAProcess, AreOneByUuid) {
  SetGpu(1, 1, "0", "GPU-a");
  SetGpu(2, 0, "1", "GPU-a");
  EXPECT_EQ(OfTheFirst(), HangVerdict::kBlockedElsewhere);
}

TEST_F(TwoGpusOfAProcess, AreToldApartByNumber) {
  SetGpu(1, 1, "0", "");
  SetGpu(2, 0, "1", "GPU-b");
  EXPECT_EQ(OfTheFirst(), HangVerdict::kRankNotCalled);
}

TEST_F(TwoGpusOfAProcess, MayBeOneWhereNothingTells) {
  EXPECT_EQ(OfTheFirst(), HangVerdict::kBlockedElsewhere);
  EXPECT_THAT(HangOf(job_, 1)->text, HasSubstr("Its process may wait in communicator"));
}

// Rank 1's GPU is stuck in another communicator, whose own rank has not called, before it comes to
// this one.
class NotBegunBehindAnother : public testing::Test {
 protected:
  static constexpr uint64_t kOther = 1;

  NotBegunBehindAnother() : job_(4) {
    job_.AddCommunicator(kOther, {1, 3});
    job_.AddCommunicator(kComm, {0, 1, 2});
  }
  void HangBehind(OldestLaunch other, bool other_first = true) {
    if (other_first) job_.Launch(kOther, 0, "AllGather");
    job_.Advance(kMs);
    LaunchOn(&job_, {0, 1, 2}, "AllReduce");
    job_.Advance(kMs);
    if (!other_first) job_.Launch(kOther, 0, "AllGather");
    SetBegun(&job_, kComm, {kBegun, kNotBegun, kBegun});
    SetBegun(&job_, kOther, {other});
    job_.Advance(kHangAfter);
  }

  SimulatedJob job_;
};

TEST_F(NotBegunBehindAnother, IsBlockedThere) {
  HangBehind(kBegun);
  for (const OldestLaunch other : {kBegun, OldestLaunch::kUnknown}) {
    SetBegun(&job_, kOther, {other});
    const Hang hang = ExpectHangNow(job_, HangVerdict::kBlockedElsewhere, {1});
    EXPECT_THAT(hang.text, HasSubstr("may wait in communicator 0000000000000001 meanwhile"));
    ExpectHangNow(job_, HangVerdict::kRankNotCalled, {1}, kOther);
  }
}

// It works on: no hang there, and none of its making here.
TEST_F(NotBegunBehindAnother, IsBusyThere) {
  HangBehind(kBegun);
  job_.Of(kOther, 0).last_completion_realtime_ns = job_.now();
  EXPECT_EQ(HangOf(job_, kOther), std::nullopt);
  EXPECT_EQ(HangOf(job_), std::nullopt);
  // Rank 2's GPU has not begun either, and does nothing else.
  SetBegun(&job_, kComm, {kBegun, kNotBegun, kNotBegun});
  const Hang hang = ExpectHangNow(job_, HangVerdict::kRankNotBegun, {2});
  EXPECT_THAT(hang.text, HasSubstr("Rank 1 has not begun its launch either."));
}

// Its GPU computes: what it has completed was launched before what it has not begun.
TEST_F(NotBegunBehindAnother, ComesToIt) {
  HangBehind(kBegun);
  job_.Complete(kOther, 0);
  EXPECT_EQ(HangOf(job_), std::nullopt);
  ExpectHang(&job_, HangVerdict::kRankNotBegun, {1});
  // What another stream does says nothing.
  job_.Launch(kOther, 0, "AllGather");
  job_.Complete(kOther, 0);
  ASSERT_TRUE(HangOf(job_));
}

TEST_F(NotBegunBehindAnother, BothBehindTheSame) {
  HangBehind(kNotBegun);
  ExpectHangNow(job_, HangVerdict::kBlockedElsewhere, {1});
}

TEST_F(NotBegunBehindAnother, WhatWasLaunchedLaterHoldsNothingUp) {
  HangBehind(kBegun, false);
  ExpectHangNow(job_, HangVerdict::kRankNotBegun, {1});
}

TEST_F(NotBegunBehindAnother, AnotherGpuHoldsNothingUp) {
  job_.Of(kOther, 0).gpu = "7";
  HangBehind(kBegun);
  ExpectHangNow(job_, HangVerdict::kRankNotBegun, {1});
}

// Rank 0 of both has called nothing.
TEST(NotBegunBehindTheSameRank, HasCalled) {
  SimulatedJob job = RunningJob();
  job.AddCommunicator(1, {0, 1});
  job.Launch(1, 1, "AllGather");
  job.Advance(kMs);
  LaunchOn(&job, {1, 2, 3}, "AllReduce");
  SetBegun(&job, kComm, {kBegun, kNotBegun, kBegun, kBegun});
  EXPECT_THAT(ExpectHang(&job, HangVerdict::kRankNotCalled, {0}).text,
              testing::Not(HasSubstr("either")));
}

// A replay may stand before it, and nobody knows.
TEST_F(NotBegunBehindAnother, BehindAGraphIsUnknown) {
  job_.Of(kOther, 0).captured = true;
  LaunchOn(&job_, {0, 1, 2}, "AllReduce");
  SetBegun(&job_, kComm, {kBegun, kNotBegun, kBegun});
  const Hang hang = ExpectHang(&job_, HangVerdict::kUnknown, {});
  EXPECT_THAT(hang.waiting, ElementsAre(0, 1, 2));
  EXPECT_THAT(hang.text, HasSubstr("Whether ranks that others wait for wait in communicator "
                                   "0000000000000001 meanwhile cannot be seen"));
}

// Rank 3 has not called here. In communicator 1, most of which is on other nodes, it is in a
// Broadcast that is not reported.
class NotCalledBesideABroadcast : public testing::Test {
 protected:
  NotCalledBesideABroadcast() : job_(RunningJob()) { job_.AddCommunicator(1, {3}, 4, 4); }
  Hang ExpectHangOf(const std::set<int>& calling, HangVerdict verdict,
                    const std::vector<int32_t>& suspects) {
    LaunchOn(&job_, calling, "AllReduce");
    return ExpectHang(&job_, verdict, suspects);
  }

  SimulatedJob job_;
};

TEST_F(NotCalledBesideABroadcast, IsNotNamed) {
  job_.Call(1, 0, "Broadcast");
  const Hang hang = ExpectHangOf({0, 1, 2}, HangVerdict::kUnknown, {});
  EXPECT_THAT(hang.waiting, ElementsAre(0, 1, 2));
  EXPECT_EQ(hang.text,
            "Rank 3 (pid 103, GPU 3) has not called AllReduce #21 (up to 1MiB), and has nothing in "
            "flight here. Ranks 0, 1 and 2 wait in AllReduce. Whether rank 3 waits in communicator "
            "0000000000000001 meanwhile cannot be seen.");
}

TEST_F(NotCalledBesideABroadcast, DoesNotAcquitAnother) {
  job_.Call(1, 0, "Broadcast");
  const Hang hang = ExpectHangOf({0, 1}, HangVerdict::kRankNotCalled, {2});
  EXPECT_THAT(hang.text, HasSubstr(" Rank 3 has not called it either, but may wait in communicator "
                                   "0000000000000001 meanwhile."));
}

// What it launched next stands behind the Broadcast, or behind a kernel of its own.
TEST_F(NotCalledBesideABroadcast, IsNamedByALaunchBehindIt) {
  for (const bool is_hidden : {true, false}) {
    SimulatedJob job = RunningJob();
    job.AddCommunicator(1, {3}, 4, 4);
    job.Call(1, 0, "Broadcast");
    if (is_hidden) job.Of(1, 0).untimed = {{"Broadcast", UntimedReason::kUnreported, 1}};
    job.Launch(1, 0, "AllReduce");
    SetBegun(&job, 1, {kNotBegun});
    LaunchOn(&job, {0, 1, 2}, "AllReduce");
    // A GPU that has not begun outranks a host that has not called.
    ExpectHang(&job, HangVerdict::kBlockedElsewhere, {3});
    const Hang hang = ExpectHangNow(job, HangVerdict::kRankNotBegun, {0}, 1);
    EXPECT_THAT(hang.text, HasSubstr("has not begun it"));
  }
}

// The Broadcast of an initialization, and steps since.
TEST_F(NotCalledBesideABroadcast, IsNamedIfItWentOnLongAfterIt) {
  job_.Call(1, 0, "Broadcast");
  job_.Advance(kHangAfter);
  job_.Collective(kComm, "AllReduce", kTogether, kMs);
  ExpectHangOf({0, 1, 2}, HangVerdict::kRankNotCalled, {3});
}

TEST_F(NotCalledBesideABroadcast, IsNamedIfItCalledThatAMomentAgo) {
  LaunchOn(&job_, {0, 1, 2}, "AllReduce");
  job_.Advance(kHangAfter);
  job_.Call(1, 0, "Broadcast");
  ExpectHangNow(job_, HangVerdict::kRankNotCalled, {3});
}

// A replay is no certain wait: it is named, and that is said.
TEST_F(NotCalledBesideABroadcast, IsNamedBesideAGraph) {
  job_.Of(1, 0).captured = true;
  const Hang hang = ExpectHangOf({0, 1, 2}, HangVerdict::kRankNotCalled, {3});
  EXPECT_THAT(hang.text,
              HasSubstr("Whether rank 3 waits in communicator 0000000000000001 meanwhile "
                        "cannot be seen."));
}

// Two communicators on one stream, in another order, both enqueued.
TEST(Hang, TwoThatStandBeforeEachOther) {
  SimulatedJob job = TwoCommunicators();
  job.Launch(kOne, 0, "AllReduce");
  job.Launch(kTwo, 1, "AllReduce");
  job.Advance(kMs);
  job.Launch(kTwo, 0, "AllReduce");
  job.Launch(kOne, 1, "AllReduce");
  SetBegun(&job, kOne, {kBegun, kNotBegun});
  SetBegun(&job, kTwo, {kNotBegun, kBegun});
  const Hang one = ExpectHang(&job, HangVerdict::kCircularWait, {1}, kOne);
  EXPECT_THAT(Steps(one), ElementsAre(Pair(kOne, 1), Pair(kTwo, 0)));
  ExpectHangNow(job, HangVerdict::kCircularWait, {0}, kTwo);
}

}  // namespace
}  // namespace nccl_pulse
