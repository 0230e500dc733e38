// Ranks that have not called their collectives alike, and have all gone on behind that: counts and
// last calls are equal.
#include "metrics/call_order.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "exporter/diagnosis/job_verdict.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/exporter/diagnosis/hang_job.h"

namespace nccl_pulse {
namespace {

struct Called {
  std::string op;
  uint64_t bytes = 4096;
  std::string datatype = "ncclFloat32";
  bool is_of_group = false;
  int root = -1;
};
const Called kReduce{"AllReduce"}, kGather{"AllGather"}, kScatter{"ReduceScatter"};

Called OfGroup(Called call) {
  call.is_of_group = true;
  return call;
}

// The last calls of a rank, from collective `first` on; the last `in_flight` have not completed.
void SetCalls(SimulatedJob* job, int rank, const std::vector<Called>& called, uint64_t first = 41,
              uint64_t in_flight = 3) {
  CommunicatorSnapshot& comm = job->Of(kComm, rank);
  std::vector<LastCallSnapshot> calls;
  for (const Called& each : called) {
    LastCallSnapshot& call = calls.emplace_back();
    call.collective_number = first++;
    call.op = each.op;
    call.bytes = each.bytes;
    call.datatype = each.datatype;
    call.is_of_group = each.is_of_group;
    call.root = each.root;
    call.launch = call.collective_number;
    call.launch_realtime_ns = job->now();
  }
  std::optional<uint64_t> completed;
  if (comm.has_heartbeat) completed = first - 1 - in_flight;
  comm.call_order = CallOrderOf(calls, completed);
}

// All ranks have called each of three operations once more, and wait.
SimulatedJob GoneOnJob() {
  SimulatedJob job = RunningJob();
  for (const Called& call : {kReduce, kGather, kScatter}) LaunchOn(&job, {0, 1, 2, 3}, call.op);
  return job;
}

std::vector<int> RootsOf(const SimulatedJob& job) {
  const DiagnosisResult diagnosis = Diagnosis().Update(job.Set(), job.now());
  std::vector<int> ranks;
  for (const JobRoot& root : JudgeJob(job.Set(), diagnosis, job.now()).roots) {
    for (const JobRank& rank : root.ranks) ranks.push_back(rank.rank);
  }
  return ranks;
}

struct CallOrderTest : testing::Test {
  SimulatedJob job = GoneOnJob();
};

TEST_F(CallOrderTest, TheRankThatCalledInAnotherOrder) {
  for (const int rank : {0, 1, 3}) SetCalls(&job, rank, {kReduce, kGather, kScatter});
  SetCalls(&job, 2, {kGather, kReduce, kScatter});
  const Hang hang = ExpectHang(&job, HangVerdict::kMismatched, {2});
  EXPECT_THAT(hang.text, HasSubstr("at collective 41 of this communicator: "));
  EXPECT_THAT(hang.text, HasSubstr("rank 2 (pid 102, GPU 2) has called AllGather of 4096 bytes "
                                   "(ncclFloat32)"));
  EXPECT_THAT(hang.text, HasSubstr("rank 1 (pid 101, GPU 1) and rank 3 (pid 103, GPU 3) have "));
  EXPECT_THAT(RootsOf(job), ElementsAre(2));
}

// The others could complete it only with this rank's data: its GPU has taken part, and does not
// end.
TEST_F(CallOrderTest, ARankThatStandsInWhatAnotherHasCompleted) {
  for (const int rank : {0, 1}) SetCalls(&job, rank, {kReduce, kGather, kScatter}, 41, 1);
  for (const int rank : {2, 3}) SetCalls(&job, rank, {kReduce, kGather, kScatter});
  // What is known of live ranks is of different moments.
  ExpectHang(&job, HangVerdict::kNoProgress, {});
  for (const int rank : {0, 1, 2, 3}) {
    job.process(rank).is_of_dump = true;
    job.process(rank).global_rank = std::to_string(rank);
  }
  const Hang hang = ExpectHang(&job, HangVerdict::kNoProgress, {2, 3});
  EXPECT_THAT(hang.text,
              HasSubstr("Rank 2 (global rank 2, GPU 2) and rank 3 (global rank 3, GPU 3) have not "
                        "completed a call that others have completed: the cause is their GPUs or "
                        "the network to them. Ranks 0 and 1 wait in ReduceScatter."));
  EXPECT_THAT(hang.waiting, ElementsAre(0, 1));
  EXPECT_THAT(RootsOf(job), ElementsAre(2, 3)) << "it is as good as any other proof";
}

// In the other communicator all wait in one call: for the GPUs of ranks 2 and 3.
TEST_F(CallOrderTest, WhatNoRankHasCompletedIsNoCauseBesideIt) {
  job.AddCommunicator(kOther, {0, 1, 2, 3});
  for (const int rank : {0, 1, 2, 3}) {
    job.Launch(kOther, rank, "AllGather");
    SetCalls(&job, rank, {kReduce, kGather, kScatter}, 41, rank < 2 ? 1 : 3);
    job.process(rank).is_of_dump = true;
    job.process(rank).global_rank = std::to_string(rank);
  }
  job.Advance(kHangAfter);
  EXPECT_THAT(RootsOf(job), ElementsAre(2, 3));
  const DiagnosisResult diagnosis = Diagnosis().Update(job.Set(), job.now());
  EXPECT_THAT(JudgeJob(job.Set(), diagnosis, job.now()).roots, SizeIs(1));
}

// The root of a Broadcast leaves before the others come.
TEST_F(CallOrderTest, ARankThatStandsInWhatOnlyTheRootHasCompleted) {
  job = RunningJob();
  for (int i = 0; i < 3; ++i) LaunchOn(&job, {0, 1, 2, 3}, "Broadcast");
  const std::vector<Called> calls(3, {"Broadcast"});
  SetCalls(&job, 0, calls, 41, 1);
  for (const int rank : {1, 2, 3}) SetCalls(&job, rank, calls);
  ExpectHang(&job, HangVerdict::kNoProgress, {});
}

TEST_F(CallOrderTest, AllAlikeIsNone) {
  for (const int rank : {0, 1, 2, 3}) SetCalls(&job, rank, {kReduce, kGather, kScatter});
  ExpectHang(&job, HangVerdict::kNoProgress, {});
}

// Rings that reach back differently, and a rank that has called less: it is the one that owes.
TEST_F(CallOrderTest, OfCallsThatBothHave) {
  job = RunningJob();
  for (const Called& call : {kReduce, kGather}) LaunchOn(&job, {0, 1, 2}, call.op);
  SetCalls(&job, 0, {kScatter, kReduce, kReduce, kGather}, 39);
  SetCalls(&job, 1, {kReduce, kGather});
  SetCalls(&job, 2, {kReduce, kGather});
  SetCalls(&job, 3, {kScatter, kReduce}, 39);
  ExpectHang(&job, HangVerdict::kRankNotCalled, {3});
  // Of one side nothing is known so far back.
  SetCalls(&job, 3, {kGather, kReduce}, 39);
  ExpectHang(&job, HangVerdict::kMismatched, {0, 1, 2, 3});
  EXPECT_THAT(HangOf(job)->text, Not(HasSubstr("rank 1 ")));
}

// Of two nobody can tell which is wrong.
TEST_F(CallOrderTest, OfATieBothAreNamed) {
  for (const int rank : {0, 1}) SetCalls(&job, rank, {kReduce, kGather, kScatter});
  for (const int rank : {2, 3}) SetCalls(&job, rank, {kReduce, kScatter, kGather});
  job.Advance(kHangAfter);
  EXPECT_THAT(RootsOf(job), ElementsAre(0, 1, 2, 3));
}

TEST_F(CallOrderTest, WhileTheOthersStillCall) {
  for (const int rank : {0, 1, 3}) SetCalls(&job, rank, {kReduce, kGather, kScatter});
  SetCalls(&job, 2, {kReduce, kScatter, kGather});
  job.Advance(kHangAfter);
  for (const int rank : {0, 1, 3}) job.Launch(kComm, rank, "AllGather");
  EXPECT_THAT(RootsOf(job), ElementsAre(2)) << "a number is a number at any time";
}

TEST_F(CallOrderTest, SizesOfOneClass) {
  for (const int rank : {0, 1, 2}) SetCalls(&job, rank, {kReduce, kGather, kScatter});
  SetCalls(&job, 3, {kReduce, {"AllGather", 4000}, kScatter});
  const Hang hang = ExpectHang(&job, HangVerdict::kMismatched, {3});
  EXPECT_THAT(hang.text, HasSubstr("rank 3 (pid 103, GPU 3) has called AllGather of 4000 bytes"));
  EXPECT_THAT(RootsOf(job), ElementsAre(3));
}

// It completed with more bytes on one rank, 8 in place of 4. The ranks wait for another thing now.
TEST_F(CallOrderTest, WhatAllHaveCompletedHoldsUpNobody) {
  const Called single{"AllReduce", 4}, twice{"AllReduce", 8, "ncclFloat64"};
  job = LaunchingJob({0, 1, 3}, "AllGather");
  for (const int rank : {0, 1, 3}) SetCalls(&job, rank, {single, kReduce, kGather}, 41, 1);
  SetCalls(&job, 2, {twice, kReduce}, 41, 0);
  ExpectHang(&job, HangVerdict::kRankNotCalled, {2});
  SetCalls(&job, 2, {kGather, kReduce}, 41, 0);  // nor another operation
  ExpectHang(&job, HangVerdict::kRankNotCalled, {2});
  SetCalls(&job, 0, {single, kReduce, kGather}, 41, 2);
  ExpectHang(&job, HangVerdict::kRankNotCalled, {2});
  SetCalls(&job, 0, {single, kReduce, kGather}, 41, 3);  // here it has not completed
  ExpectHang(&job, HangVerdict::kMismatched, {2});
}

TEST_F(CallOrderTest, IsComparedWhereNothingTellsOfCompletion) {
  for (const int rank : {0, 1, 2, 3}) {
    SetCalls(&job, rank, {kReduce, kGather, kScatter});
    job.Of(kComm, rank).call_order.in_flight = 0;
  }
  SetCalls(&job, 2, {kGather, kReduce, kScatter});
  job.Of(kComm, 2).call_order.in_flight = 0;
  ExpectHang(&job, HangVerdict::kMismatched, {2});
}

// With another type an operation mostly completes: only of one that has not it may be the reason.
TEST_F(CallOrderTest, TypesOfCallsThatHaveNotCompleted) {
  const Called other{"AllReduce", 4096, "ncclInt32"};
  job = GoneOnJob();
  for (const int rank : {0, 1, 2, 3}) SetCalls(&job, rank, {kGather, kReduce, kScatter}, 41, 1);
  SetCalls(&job, 1, {kGather, other, kScatter}, 41, 1);
  ExpectHang(&job, HangVerdict::kNoProgress, {});
  SetCalls(&job, 3, {kGather, kReduce, kScatter}, 41, 2);  // here it has not completed
  ExpectHang(&job, HangVerdict::kMismatched, {1});
  EXPECT_THAT(RootsOf(job), ElementsAre(1));
}

// What does not reduce moves bytes, of whatever type.
TEST_F(CallOrderTest, TypesOfWhatReduces) {
  const Called words{"AllGather", 4096, "ncclInt32"};
  job = GoneOnJob();
  for (const int rank : {0, 1, 2}) SetCalls(&job, rank, {kReduce, kGather, kScatter});
  SetCalls(&job, 3, {kReduce, words, kScatter});
  ExpectHang(&job, HangVerdict::kNoProgress, {});
  SetCalls(&job, 3, {kReduce, kGather, {"ReduceScatter", 4096, "ncclInt32"}});
  ExpectHang(&job, HangVerdict::kMismatched, {3});
}

// NCCL sorts the calls of a group.
TEST_F(CallOrderTest, WithinAGroupItMayDiffer) {
  for (const int rank : {0, 1, 2}) SetCalls(&job, rank, {kReduce, OfGroup(kGather), kScatter});
  SetCalls(&job, 3, {kGather, OfGroup(kReduce), kScatter});
  ExpectHang(&job, HangVerdict::kNoProgress, {});
  // Called in one order, and grouped on some ranks alone.
  for (const int rank : {0, 1}) SetCalls(&job, rank, {kGather, kReduce, kScatter});
  SetCalls(&job, 2, {kGather, OfGroup(kReduce), kScatter});
  ExpectHang(&job, HangVerdict::kNoProgress, {});
  // Another call in it.
  for (const int rank : {0, 1, 2}) SetCalls(&job, rank, {kGather, OfGroup(kReduce), kScatter});
  SetCalls(&job, 3, {kScatter, OfGroup(kReduce), kScatter});
  ExpectHang(&job, HangVerdict::kMismatched, {3});
  EXPECT_THAT(RootsOf(job), ElementsAre(3));
}

// Numbers have 32 bits.
TEST_F(CallOrderTest, BehindTheLastNumber) {
  constexpr uint64_t kFirst = (uint64_t{1} << 32) - 1;
  for (const int rank : {0, 1, 2}) SetCalls(&job, rank, {kReduce, kGather, kScatter}, kFirst);
  SetCalls(&job, 3, {kReduce, kScatter, kGather}, kFirst);
  for (const int rank : {0, 1, 2, 3}) {
    EXPECT_EQ(job.Of(kComm, rank).call_order.calls.size(), 3u);
  }
  ExpectHang(&job, HangVerdict::kMismatched, {3});
  EXPECT_THAT(HangOf(job)->text, HasSubstr("at collective 0 "));
}

Called Broadcast(int root, std::string datatype = "ncclFloat32") {
  return {"Broadcast", 4096, std::move(datatype), false, root};
}

SimulatedJob BroadcastJob(int calls) {
  SimulatedJob job = RunningJob();
  for (int i = 0; i < calls; ++i) LaunchOn(&job, {0, 1, 2, 3}, "Broadcast");
  return job;
}

TEST_F(CallOrderTest, AnotherRoot) {
  job = BroadcastJob(2);
  for (const int rank : {0, 1, 2}) SetCalls(&job, rank, {Broadcast(0), Broadcast(1)}, 41, 1);
  SetCalls(&job, 3, {Broadcast(0), Broadcast(3)}, 41, 1);
  const Hang hang = ExpectHang(&job, HangVerdict::kMismatched, {3});
  EXPECT_THAT(hang.text, HasSubstr("at collective 42 of this communicator: the roots differ: "));
  EXPECT_THAT(hang.text, HasSubstr("rank 3 (pid 103, GPU 3) has called Broadcast of 4096 bytes "
                                   "(ncclFloat32) with root 3"));
  EXPECT_THAT(hang.text, HasSubstr("(ncclFloat32) with root 1"));
  EXPECT_THAT(hang.text, HasSubstr("rank 1 (pid 101, GPU 1) and rank 2 (pid 102, GPU 2) have "));
  EXPECT_THAT(RootsOf(job), ElementsAre(3));
}

// A call that has completed nevertheless left bytes in NCCL's buffers that nobody takes.
TEST_F(CallOrderTest, ACompletedCallIsTheCauseWhereNothingElseIs) {
  job = BroadcastJob(2);
  for (const int rank : {0, 1, 2}) SetCalls(&job, rank, {Broadcast(0), Broadcast(1)}, 41, 1);
  SetCalls(&job, 3, {Broadcast(2), Broadcast(1)}, 41, 1);
  ExpectHang(&job, HangVerdict::kMismatched, {3});
  EXPECT_THAT(HangOf(job)->text, HasSubstr("at collective 41 of this communicator: the roots"));
}

TEST_F(CallOrderTest, ACompletedCallIsNotTheCauseWhereARankHasNotCome) {
  job = BroadcastJob(1);
  for (int rank = 0; rank < 4; ++rank) job.Complete(kComm, rank);
  LaunchOn(&job, {1, 2, 3}, "AllReduce");
  SetCalls(&job, 0, {Broadcast(0)}, 41, 0);
  for (const int rank : {1, 2}) SetCalls(&job, rank, {Broadcast(0), kReduce}, 41, 1);
  SetCalls(&job, 3, {Broadcast(2), kReduce}, 41, 1);
  ExpectHang(&job, HangVerdict::kRankNotCalled, {0});
}

TEST_F(CallOrderTest, RootsThatAreNotKnown) {
  job = BroadcastJob(2);
  for (const int rank : {0, 1, 2, 3}) SetCalls(&job, rank, {Broadcast(0), Broadcast(1)}, 41, 2);
  for (const std::vector<Called>& calls :
       {std::vector{Broadcast(0), Broadcast(-1)}, std::vector{Broadcast(-1), Broadcast(1)}}) {
    SetCalls(&job, 3, calls, 41, 2);
    ExpectHang(&job, HangVerdict::kNoProgress, {});
  }
}

// Each rank may have its own order, and its own name for bytes.
TEST_F(CallOrderTest, RootsWithinAGroup) {
  job = BroadcastJob(2);
  const std::vector<Called> calls = {Broadcast(0), OfGroup(Broadcast(1))};
  for (const int rank : {0, 1, 2}) SetCalls(&job, rank, calls, 41, 2);
  SetCalls(&job, 3, {Broadcast(1, "ncclInt8"), OfGroup(Broadcast(0, "ncclInt8"))}, 41, 2);
  ExpectHang(&job, HangVerdict::kNoProgress, {});
  SetCalls(&job, 3, {Broadcast(1), OfGroup(Broadcast(2))}, 41, 2);
  ExpectHang(&job, HangVerdict::kMismatched, {3});
}

// What came over the network may be anything.
TEST_F(CallOrderTest, DamagedIsNotCompared) {
  for (const int rank : {0, 1, 2, 3}) SetCalls(&job, rank, {kReduce, kGather, kScatter});
  job.Of(kComm, 3).call_order.calls[1] = 99;
  ExpectHang(&job, HangVerdict::kNoProgress, {});
  SetCalls(&job, 3, {kGather});
  CallOrderSnapshot& order = job.Of(kComm, 3).call_order;
  order.calls.resize(CallOrderSnapshot::kMostCalls + 1);
  ExpectHang(&job, HangVerdict::kNoProgress, {});
  order.calls.resize(CallOrderSnapshot::kMostCalls);
  order.kinds.resize(CallOrderSnapshot::kMostKinds + 1);
  ExpectHang(&job, HangVerdict::kNoProgress, {});
  order.kinds.resize(CallOrderSnapshot::kMostKinds);
  ExpectHang(&job, HangVerdict::kMismatched, {3});
}

}  // namespace
}  // namespace nccl_pulse
