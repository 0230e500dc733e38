// Calls that made nothing: they failed and were made again, or were only estimated.
#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "exporter/diagnosis/facts/call_counts.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "metrics/call_order.h"
#include "tests/exporter/diagnosis/hang_job.h"

namespace nccl_pulse {
namespace {

// A call of rank 2 fails, and is made again.
SimulatedJob JobWithAFailedCall(const std::string& op = "AllReduce") {
  SimulatedJob job = RunningJob();
  job.Fail(kComm, 2, op);
  job.Collective(kComm, op, kTogether, kMs);
  return job;
}

TEST(AbandonedCalls, AreNotTakenForTheOneThatIsMissing) {
  SimulatedJob job = JobWithAFailedCall();
  LaunchOn(&job, {0, 1, 3}, "AllReduce");
  const Hang hang = ExpectHang(&job, HangVerdict::kRankNotCalled, {2});
  EXPECT_THAT(hang.text, HasSubstr("Rank 2 (pid 102, GPU 2) has not called AllReduce, and has"));
}

TEST(AbandonedCalls, AreOwedByNobody) {
  SimulatedJob job = JobWithAFailedCall();
  LaunchOn(&job, {1, 2, 3}, "AllReduce");
  const Hang hang = ExpectHang(&job, HangVerdict::kRankNotCalled, {0});
  EXPECT_THAT(hang.text, Not(HasSubstr("2 x AllReduce")));
}

// It has called one operation as often as the others, and waits in the other one.
TEST(AbandonedCalls, AreNoMismatch) {
  SimulatedJob job = JobWithAFailedCall();
  job.Collective(kComm, "AllGather", kTogether, kMs);
  LaunchOn(&job, {0, 1, 3}, "AllReduce");
  ExpectHang(&job, HangVerdict::kRankNotCalled, {2});
}

// Rank 2 has estimated an operation that is called nowhere else.
TEST(AbandonedCalls, OfAnOperationThatNobodyElseCalls) {
  SimulatedJob job = RunningJob();
  for (int i = 0; i < 3; ++i) job.Fail(kComm, 2, "ReduceScatter");
  job.Of(kComm, 2).algorithms.clear();
  job.Of(kComm, 2).untimed = {{"ReduceScatter", UntimedReason::kUnreported, 3}};
  job.Collective(kComm, "AllReduce", kTogether, kMs);
  LaunchOn(&job, {0, 1, 3}, "AllReduce");
  SimulatedJob in_flight = job;
  const Hang hang = ExpectHang(&job, HangVerdict::kRankNotCalled, {2});
  EXPECT_THAT(hang.text, Not(HasSubstr("ReduceScatter")));
  // It may be in that operation.
  LaunchOn(&in_flight, {2}, "AllGather");
  ExpectHang(&in_flight, HangVerdict::kMismatched, {2});
}

// Of which size the call was that failed is not known.
TEST(AbandonedCalls, AreOfAnySize) {
  SimulatedJob job = JobWithAFailedCall();
  job.Collective(kComm, "AllReduce", kTogether, kMs, 6);
  LaunchOn(&job, {0, 1, 3}, "AllReduce", 6);
  ExpectHang(&job, HangVerdict::kRankNotCalled, {2});
}

// What a rank called that ended is compared in the same way.
TEST(AbandonedCalls, OfARankThatEnded) {
  SimulatedJob job = JobWithAFailedCall();
  for (const int rank : {0, 1, 3}) job.Call(kComm, rank, "AllReduce");
  job.process(2).end = ProcessEnd::kLost;
  ExpectHang(&job, HangVerdict::kProcessGone, {2});
}

// NCCL does not report it of anybody, or not always: these calls have been made.
TEST(AbandonedCalls, AreNotThoseThatNcclDoesNotReport) {
  for (const int others : {0, 1}) {
    SimulatedJob job = RunningJob();
    for (int rank = 0; rank < 4; ++rank) {
      for (int i = 0; i < 3; ++i) job.Fail(kComm, rank, "Broadcast");
      // None was reported of any rank, or some of each.
      if (others == 0) job.Of(kComm, rank).algorithms.clear();
    }
    job.Fail(kComm, 1, "Broadcast");
    job.Of(kComm, 1).algorithms = job.Of(kComm, 2).algorithms;
    LaunchOn(&job, {1}, "AllReduce");
    const Hang hang = ExpectHang(&job, HangVerdict::kRankNotCalled, {0, 2, 3});
    EXPECT_THAT(hang.text, HasSubstr("Broadcast"));
  }
}

// The last calls of a rank: AllReduce and AllGather by turns, the last of which are in flight.
void SetOrder(SimulatedJob* job, int rank, uint64_t first, const std::vector<int>& failed) {
  std::vector<LastCallSnapshot> calls;
  uint64_t launches = 0;
  uint64_t number = first;
  for (int i = 0; i < 6; ++i) {
    LastCallSnapshot call;
    call.op = i % 2 == 0 ? "AllReduce" : "AllGather";
    call.bytes = 4096;
    if (std::find(failed.begin(), failed.end(), i) != failed.end()) {
      call.collective_number = number++;
      calls.push_back(call);
    }
    call.collective_number = number++;
    call.launch = ++launches;
    call.launch_realtime_ns = job->now();
    calls.push_back(call);
  }
  job->Of(kComm, rank).call_order = CallOrderOf(calls, 2);
}

TEST(AbandonedCalls, HaveNoNumber) {
  // Before the calls that are known, between them, both.
  for (const auto& [first, failed] :
       std::vector<std::pair<uint64_t, std::vector<int>>>{{42, {}}, {41, {2}}, {41, {0}}}) {
    SimulatedJob job = JobWithAFailedCall();
    for (const int rank : {0, 1, 3}) SetOrder(&job, rank, 41, {});
    SetOrder(&job, 2, first, failed);
    LaunchOn(&job, {0, 1, 2, 3}, "AllReduce");
    ExpectHang(&job, HangVerdict::kNoProgress, {});
    // That one calls otherwise is still seen.
    CallOrderSnapshot& order = job.Of(kComm, 3).call_order;
    order.kinds.front().bytes = 8192;
    ExpectHang(&job, HangVerdict::kMismatched, {3});
  }
}

}  // namespace
}  // namespace nccl_pulse
