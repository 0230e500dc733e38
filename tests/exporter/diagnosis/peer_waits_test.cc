// Ranks that wait in Send and Recv whose peers NCCL has reported.

#include <algorithm>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/exporter/diagnosis/hang_job.h"

namespace nccl_pulse {
namespace {

using Numbers = std::vector<uint64_t>;

SimulatedJob JobOf(int ranks) {
  SimulatedJob job(ranks);
  std::vector<int> all;
  for (int i = 0; i < ranks; ++i) all.push_back(i);
  job.AddCommunicator(kComm, all);
  job.AddCommunicator(kOther, all);
  return job;
}

// One launch.
void Exchange(SimulatedJob* job, int rank, Numbers sends_to, Numbers receives_from) {
  job->Launch(kComm, rank, sends_to.empty() ? "Recv" : "Send");
  job->Of(kComm, rank).peers = {std::move(sends_to), std::move(receives_from), true};
}

constexpr uint64_t kMiB = 1 << 20;

// One launch of a single Send or Recv of these bytes. `kept`: number of sizes that the rank keeps.
void CallPeer(SimulatedJob* job, int rank, int peer, bool receives, uint64_t bytes,
              std::size_t kept = 14) {
  const Numbers peers = {static_cast<uint64_t>(peer)};
  Exchange(job, rank, receives ? Numbers() : peers, receives ? peers : Numbers());
  auto& all = job->Of(kComm, rank).peer_calls;
  const auto is_same = [&](const auto& each) {
    return each.peer == peer && each.receives == receives;
  };
  auto calls = std::find_if(all.begin(), all.end(), is_same);
  if (calls == all.end()) {
    calls = all.insert(all.end(), {peer, receives, 0, {}, receives ? "ncclInt8" : "ncclFloat32"});
  }
  const uint64_t before = calls->totals.empty() ? 0 : calls->totals.back();
  ++calls->calls;
  calls->totals.push_back((before + bytes) & PeerCallsSnapshot::kBytesMask);
  if (calls->totals.size() > kept) calls->totals.erase(calls->totals.begin());
}

// Rank 1 sends these sizes to rank 2, at once. Only the last Send may be in flight.
void SendAll(SimulatedJob* job, const Numbers& sizes, bool is_in_flight = false) {
  for (const uint64_t size : sizes) {
    job->Complete(kComm, 1);
    CallPeer(job, 1, 2, false, size);
  }
  if (!is_in_flight) job->Complete(kComm, 1);
}
void ReceiveAll(SimulatedJob* job, const Numbers& sizes, bool is_in_flight = false) {
  for (const uint64_t size : sizes) {
    job->Complete(kComm, 2);
    CallPeer(job, 2, 1, true, size);
  }
  if (!is_in_flight) job->Complete(kComm, 2);
}

struct PeerWaits : testing::Test {
  SimulatedJob job = JobOf(4);
};

TEST_F(PeerWaits, ThePeerThatHasNotCalled) {
  Exchange(&job, 1, {2}, {});
  Exchange(&job, 3, {}, {2});
  const Hang hang = ExpectHang(&job, HangVerdict::kRankNotCalled, {2});
  EXPECT_THAT(hang.text, HasSubstr("Rank 2 (pid 102, GPU 2) has not called what others wait for: "
                                   "Recv from rank 1, Send to rank 3; and has nothing in flight."));
  EXPECT_THAT(hang.waiting, ElementsAre(1, 3));
  EXPECT_EQ(hang.missing_call, "");
}

// Ranks 1 and 2 have made pairs so far. Then rank 1 sends to rank 3, or rank 2 receives from rank 0: nothing
// says that the idle rank should have come.
TEST_F(PeerWaits, ACallWithTheWrongPeerBlamesNoIdleRank) {
  for (const bool is_sender_wrong : {true, false}) {
    for (const int pairs : {10, 100}) {
      job = JobOf(4);
      for (int i = 0; i < pairs; ++i) {
        Exchange(&job, 1, {2}, {});
        Exchange(&job, 2, {}, {1});
        job.Complete(kComm, 1);
        job.Complete(kComm, 2);
      }
      Exchange(&job, 1, is_sender_wrong ? Numbers{3} : Numbers{2}, {});
      Exchange(&job, 2, {}, is_sender_wrong ? Numbers{1} : Numbers{0});
      job.Advance(kHangAfter);
      if (pairs == 100) {
        ExpectHangNow(job, HangVerdict::kPointToPoint, {});
      } else {  // too few to tell
        ExpectHangNow(job, HangVerdict::kRankNotCalled, {is_sender_wrong ? 3 : 0});
      }
    }
  }
}

// A watchdog has ended rank 1, which waited for rank 0, and for which rank 2 waits in matching calls.
TEST_F(PeerWaits, ThePeerOfAnEndedRankThatHadMatched) {
  job = JobOf(3);
  Exchange(&job, 1, {2}, {0});
  Exchange(&job, 2, {}, {1});
  job.Advance(kHangAfter);
  End(&job, 1);
  ExpectHang(&job, HangVerdict::kRankNotCalled, {0});
}

// A watchdog has ended ranks 1 and 2, whose calls matched: they did not wait for each other.
TEST_F(PeerWaits, EndedRanksAreNoCircle) {
  Exchange(&job, 1, {2}, {2});
  Exchange(&job, 2, {1, 3}, {1});
  Exchange(&job, 3, {}, {2});
  job.Advance(kHangAfter);
  for (const int rank : {1, 2}) {
    End(&job, rank);
  }
  ExpectHang(&job, HangVerdict::kPointToPoint, {});
}

// Rank 0 ended first. Ranks 1 and 2 had matching calls, and were ended later.
TEST_F(PeerWaits, TheFirstEndBehindEndedRanksThatHadMatched) {
  End(&job, 0);
  Exchange(&job, 1, {2}, {0, 2});
  Exchange(&job, 2, {1, 3}, {1});
  Exchange(&job, 3, {}, {2});
  job.Advance(kHangAfter);
  for (const int rank : {1, 2}) End(&job, rank);
  ExpectHang(&job, HangVerdict::kProcessGone, {0});
}

// Ranks 1 and 2 have nothing in flight, and rank 0 waits for a rank that no endpoint reports.
TEST_F(PeerWaits, APeerThatIsNotSeen) {
  job = SimulatedJob(3);
  job.AddCommunicator(kComm, {0, 1, 2}, 4, 1);
  Exchange(&job, 0, {}, {3});
  EXPECT_EQ(ExpectHang(&job, HangVerdict::kRankNotSeen, {3}).text,
            "Not seen at this endpoint: rank 3. Its process has ended or is not monitored, or "
            "another endpoint serves it. Rank 0 waits in Recv.");
}

// For whom rank 1 waited is not known, and rank 2's GPU has not begun work of the same age.
TEST_F(PeerWaits, AnAbortedRankMayHaveWaitedForAGpuBehindItsOwnWork) {
  job = JobOf(3);
  Exchange(&job, 0, {}, {1});
  Exchange(&job, 1, {}, {2});
  job.Launch(kOther, 2, "AllReduce");
  job.Of(kOther, 2).oldest_launch = kNotBegun;
  job.Of(kComm, 2).finalized = true;
  job.Advance(2 * kHangAfter);
  job.Complete(kComm, 1);
  job.Of(kComm, 1).finalized = true;
  job.Of(kComm, 1).peers = {};
  ExpectHangNow(job, HangVerdict::kRankNotBegun, {2}, kOther);
}

// Rank 0 waits for rank 1, which waits for rank 2.
TEST_F(PeerWaits, TheEndOfAChain) {
  Exchange(&job, 0, {}, {1});
  Exchange(&job, 1, {}, {2});
  const Hang hang = ExpectHang(&job, HangVerdict::kRankNotCalled, {2});
  EXPECT_EQ(hang.missing_call, "Send to rank 1");
}

// All have launched the exchange, and rank 2 aborts the communicator.
TEST_F(PeerWaits, WhoAbortsAnExchangeIsWhyTheOthersWait) {
  for (int rank = 0; rank < 4; ++rank) {
    Exchange(&job, rank, {0, 1, 2, 3}, {0, 1, 2, 3});
    job.Of(kComm, rank).calls = {{"Send", 4, "", false, 3, 0}, {"Recv", 4, "", false, 3, 0}};
  }
  job.Advance(100 * kMs);
  job.Complete(kComm, 2);
  job.Of(kComm, 2).finalized = true;
  EXPECT_EQ(ExpectHang(&job, HangVerdict::kRankNotCalled, {2}).situation, Situation::kFinalized);
}

// The host of rank 1 waits in a driver call for its Recv, and the plugin's thread waits there, too.
TEST_F(PeerWaits, ADriverCallThatWaitsForTheRecv) {
  Exchange(&job, 1, {}, {0});
  Exchange(&job, 2, {}, {1});
  job.Advance(300 * kMs);
  AdvanceWithout(&job, 1);
  ExpectHangNow(job, HangVerdict::kProcessStopped, {1});  // by a signal, perhaps
  job.process(1).run_state = RunState::kRunning;
  ExpectHangNow(job, HangVerdict::kRankNotCalled, {0});
}

// Ranks 1 and 2 have sent, rank 3 has not: small Sends end by themselves.
TEST_F(PeerWaits, OfSeveralIdlePeersNobodyIsNamed) {
  for (const int rank : {1, 2}) {
    Exchange(&job, rank, {0}, {});
    job.Complete(kComm, rank);
  }
  Exchange(&job, 0, {}, {1, 2, 3});
  const Hang hang = ExpectHang(&job, HangVerdict::kPointToPoint, {});
  EXPECT_THAT(hang.text, HasSubstr("Rank 0 waits in Recv for rank 1, which has nothing in flight "
                                   "here; rank 0 waits in Recv for rank 2"));
}

// Rank 1 may have sent to rank 0. Rank 3 is needed by rank 2, which has nothing else in flight.
TEST_F(PeerWaits, OfSeveralIdlePeersTheOneOfASingleCall) {
  Exchange(&job, 0, {}, {1, 2});
  Exchange(&job, 2, {}, {3});
  ExpectHang(&job, HangVerdict::kRankNotCalled, {3});
}

TEST_F(PeerWaits, AnIdlePeerThatWaitsElsewhereIsNotNamed) {
  Exchange(&job, 0, {}, {1});
  job.Launch(kOther, 1, "AllReduce");
  ExpectHang(&job, HangVerdict::kBlockedElsewhere, {1});
}

// The rank that has not called may be the one whose peer is not reported.
TEST_F(PeerWaits, WithAnUnknownPeerNobodyIsNamed) {
  Exchange(&job, 0, {}, {1});
  job.Of(kComm, 0).peers.are_known = false;
  ExpectHang(&job, HangVerdict::kPointToPoint, {});
}

// A watchdog aborts a rank that waits: what it had in flight ends.
TEST_F(PeerWaits, APeerThatHasAbortedIsNotNamed) {
  Exchange(&job, 0, {}, {1});
  Exchange(&job, 1, {}, {0});
  job.Advance(kHangAfter);
  job.Complete(kComm, 1);
  job.Of(kComm, 1).finalized = true;
  ExpectHangNow(job, HangVerdict::kPointToPoint, {});
}

// Rank 2's watchdog has aborted it while it waited, so it is not missing.
TEST_F(PeerWaits, BesideAnAbortedRankThePeerThatHasNotCalled) {
  Exchange(&job, 0, {1, 2}, {1, 2});
  Exchange(&job, 2, {0, 1}, {0, 1});
  job.Of(kComm, 2).finalized = true;
  ExpectHang(&job, HangVerdict::kRankNotCalled, {1});
}

TEST_F(PeerWaits, ACircle) {
  Exchange(&job, 0, {}, {1});
  Exchange(&job, 1, {2}, {});
  Exchange(&job, 2, {1}, {});
  Exchange(&job, 3, {}, {2});
  const Hang hang = ExpectHang(&job, HangVerdict::kCircularWait, {1, 2});
  EXPECT_THAT(hang.text, HasSubstr("rank 1 waits in Send for rank 2"));
  EXPECT_THAT(hang.text, HasSubstr("rank 2 waits in Send for rank 1"));
  ASSERT_EQ(hang.circle.size(), 2u);
  EXPECT_EQ(hang.circle[0].comm_id, kComm);
}

// So they have not called elsewhere.
TEST_F(PeerWaits, WhoIsInACircleIsBlockedThere) {
  Exchange(&job, 1, {2}, {});
  Exchange(&job, 2, {1}, {});
  for (const int rank : {0, 3}) job.Launch(kOther, rank, "AllReduce");
  ExpectHang(&job, HangVerdict::kCircularWait, {1, 2});
  const Hang hang = ExpectHangNow(job, HangVerdict::kBlockedElsewhere, {1, 2}, kOther);
  EXPECT_THAT(hang.text, HasSubstr("00000000000000c0 meanwhile: look there first."));
}

// The Send has ended, and the network has lost it.
TEST_F(PeerWaits, APeerThatLaunchedSinceIsNotNamed) {
  job = JobOf(3);
  Exchange(&job, 0, {}, {1});
  job.Advance(kMs);
  Exchange(&job, 1, {0}, {});
  job.Complete(kComm, 1);
  ExpectHang(&job, HangVerdict::kPointToPoint, {});
}

// Its own GPU is stuck, and what the peer has sent is there.
TEST_F(PeerWaits, ARecvThatHasNotBegunIsNoWait) {
  job = JobOf(3);
  Exchange(&job, 0, {}, {1});
  Exchange(&job, 2, {}, {0});
  SetBegun(&job, kComm, {kNotBegun, kBegun, kBegun});
  ExpectHang(&job, HangVerdict::kRankNotBegun, {0});
  Exchange(&job, 1, {}, {0});  // no circle
  ExpectHang(&job, HangVerdict::kRankNotBegun, {0});
}

// With a launch more it may be that the first has completed, unless a gate shows that it has not.
TEST_F(PeerWaits, NoCircleOfWhatIsKnownLate) {
  for (const bool is_known : {false, true}) {
    job = JobOf(4);
    for (const int rank : {1, 2}) {
      const uint64_t other = 3 - rank;
      Exchange(&job, rank, {other}, {});
      Exchange(&job, rank, {other}, {other});
      if (is_known) job.Of(kComm, rank).peers.is_sending_to = static_cast<int>(other);
    }
    Exchange(&job, 3, {}, {2});
    if (is_known) {
      const Hang hang = ExpectHang(&job, HangVerdict::kCircularWait, {1, 2});
      EXPECT_THAT(hang.text, HasSubstr("rank 1 waits in Send for rank 2"));
    } else {
      ExpectHang(&job, HangVerdict::kPointToPoint, {});
    }
  }
}

// Rank 2 receives what rank 1 sends, or the link between them is dead.
TEST_F(PeerWaits, NoCircleWithARankThatReceives) {
  job = JobOf(3);
  Exchange(&job, 0, {1}, {});
  job.Of(kComm, 0).peers.is_sending_to = 1;
  Exchange(&job, 1, {2}, {0});
  job.Of(kComm, 1).peers.is_sending_to = 2;
  Exchange(&job, 2, {0}, {1});
  Exchange(&job, 2, {0}, {1});
  ExpectHang(&job, HangVerdict::kPointToPoint, {});
}

// Both have called.
TEST_F(PeerWaits, WhereBothHaveCalledNobodyIsNamed) {
  job = JobOf(3);
  Exchange(&job, 1, {2}, {});
  Exchange(&job, 2, {}, {1});
  const Hang hang = ExpectHang(&job, HangVerdict::kPointToPoint, {});
  EXPECT_THAT(
      hang.text,
      HasSubstr(
          "Each Send and Recv with a known peer has its counterpart in flight. Which rank blocks"));
}

// An all-to-all in which rank 3 has no tokens, and in which the link between two others is dead.
TEST_F(PeerWaits, ARankWithoutTokensIsNotNamed) {
  for (const bool are_known : {true, false}) {
    job = JobOf(4);
    for (const int rank : {0, 1, 2}) {
      Numbers others;
      for (const uint64_t other : {0, 1, 2}) {
        if (other != static_cast<uint64_t>(rank)) others.push_back(other);
      }
      for (std::size_t i = 1; i < others.size(); ++i) job.Call(kComm, rank, "Send");
      for (std::size_t i = 0; i < others.size(); ++i) job.Call(kComm, rank, "Recv");
      Exchange(&job, rank, others, others);
      if (!are_known) job.Of(kComm, rank).peers = {};
    }
    ExpectHang(&job, HangVerdict::kPointToPoint, {});
  }
}

// Each receives first, and has its Send queued behind.
TEST_F(PeerWaits, ACircleOfRecvs) {
  job = JobOf(2);
  for (const int rank : {0, 1}) {
    const uint64_t other = 1 - rank;
    job.Launch(kComm, rank, "Recv");
    Exchange(&job, rank, {other}, {other});
  }
  // Which call the GPUs are in isn't known.
  const Hang unknown = ExpectHang(&job, HangVerdict::kPointToPoint, {});
  EXPECT_EQ(unknown.op, "");
  for (const int rank : {0, 1}) job.Of(kComm, rank).peers.is_receiving_from = 1 - rank;
  const Hang hang = ExpectHangNow(job, HangVerdict::kCircularWait, {0, 1});
  EXPECT_EQ(hang.op, "Recv");
  EXPECT_THAT(hang.text, HasSubstr("rank 0 waits in Recv for rank 1; rank 1 waits in Recv for "
                                   "rank 0"));
}

// Each host waits for its Recv. Rank 2 has other work.
TEST_F(PeerWaits, ACircleOfRecvsWithoutSends) {
  job = JobOf(3);
  for (const int rank : {0, 1}) {
    Exchange(&job, rank, {}, {static_cast<uint64_t>(1 - rank)});
    job.Of(kComm, rank).peers.is_receiving_from = 1 - rank;
  }
  ExpectHang(&job, HangVerdict::kCircularWait, {0, 1});
}

// The link that rank 1 receives from is dead. A small Send ends before its Recv.
TEST_F(PeerWaits, NoCircleOfRecvsOneOfWhoseSendsMayHaveEnded) {
  for (const int ranks : {2, 3}) {
    for (const bool is_ahead : {false, true}) {  // with a launch more
      job = JobOf(ranks);
      Exchange(&job, 0, {1}, {});
      job.Complete(kComm, 0);
      for (const int rank : {0, 1}) {
        const auto other = static_cast<uint64_t>(1 - rank);
        Exchange(&job, rank, {}, {other});
        if (is_ahead) Exchange(&job, rank, {}, {other});
        job.Of(kComm, rank).peers.is_receiving_from = 1 - rank;
      }
      ExpectHang(&job, HangVerdict::kPointToPoint, {});
    }
  }
}

// A watchdog has ended rank 0 in a Send to rank 1, whose GPU is in a Send to a rank of another node.
TEST_F(PeerWaits, NoCircleWithALaterCallOfAGpuWhosePlaceIsKnown) {
  job = SimulatedJob(2);
  job.AddCommunicator(kComm, {0, 1}, 3, 2);
  Exchange(&job, 0, {1}, {1});
  job.Of(kComm, 0).peers.is_sending_to = 1;
  Exchange(&job, 1, {0, 2}, {0, 2});
  job.Of(kComm, 1).peers.is_sending_to = 2;
  job.Advance(kHangAfter);
  End(&job, 0);
  ExpectHang(&job, HangVerdict::kPointToPoint, {});
}

// Rank 1 is in a Send to rank 2: rank 0 may receive from the wrong rank, or rank 1 send to it.
TEST_F(PeerWaits, NoCircleWhereAPeerMayBeWrong) {
  job = JobOf(3);
  Exchange(&job, 0, {}, {1});
  Exchange(&job, 0, {1}, {1});
  job.Of(kComm, 0).peers.is_receiving_from = 1;
  Exchange(&job, 1, {2}, {});
  job.Of(kComm, 1).peers.is_sending_to = 2;
  Exchange(&job, 2, {}, {0});
  Exchange(&job, 2, {0}, {0});
  job.Of(kComm, 2).peers.is_receiving_from = 0;
  ExpectHang(&job, HangVerdict::kPointToPoint, {});
}

// Both GPUs are in the matching calls: the link is dead.
TEST_F(PeerWaits, NoCircleOfMatchingCalls) {
  job = JobOf(2);
  Exchange(&job, 0, {1}, {1});
  Exchange(&job, 0, {1}, {1});
  Exchange(&job, 1, {0}, {0});
  Exchange(&job, 1, {0}, {0});
  job.Of(kComm, 0).peers.is_sending_to = 1;
  job.Of(kComm, 1).peers.is_receiving_from = 0;
  ExpectHang(&job, HangVerdict::kPointToPoint, {});
}

// Rank 0 receives from all in turn, and has posted the next round. Rank 2 has nothing in flight.
TEST_F(PeerWaits, TheOnlyIdleRankThatAllWaitFor) {
  for (int i = 0; i < 3; ++i) Exchange(&job, 0, {}, {1, 2, 3});
  job.Advance(kMs);
  Exchange(&job, 2, {0}, {});
  job.Complete(kComm, 2);
  for (const int rank : {1, 3}) Exchange(&job, rank, {0}, {});
  const Hang hang = ExpectHang(&job, HangVerdict::kRankNotCalled, {2});
  EXPECT_EQ(hang.missing_call, "Send to rank 0");
}

// Rank 0 sends to all in turn. The GPU of rank 2 has not begun its Recv.
TEST_F(PeerWaits, TheOnlyGpuThatHasNotBegun) {
  for (int i = 0; i < 3; ++i) Exchange(&job, 0, {1, 2, 3}, {});
  for (const int rank : {1, 2, 3}) Exchange(&job, rank, {}, {0});
  SetBegun(&job, kComm, {OldestLaunch::kUnknown, kBegun, kNotBegun, kBegun});
  ExpectHang(&job, HangVerdict::kRankNotBegun, {2});
}

// The receiver's call ends when it has its bytes; the sender still waits.
TEST_F(PeerWaits, ARecvThatIsSmallerThanItsSend) {
  for (const bool is_known : {true, false}) {
    job = JobOf(4);
    SendAll(&job, Numbers(41, 8 * kMiB), true);
    Numbers received(40, 8 * kMiB);
    received.push_back(4 * kMiB);
    ReceiveAll(&job, received);
    if (!is_known) {
      job.Of(kComm, 2).peer_calls.clear();
      ExpectHang(&job, HangVerdict::kRankNotCalled, {2});
      continue;
    }
    const Hang hang = ExpectHang(&job, HangVerdict::kMismatched, {1, 2});
    EXPECT_EQ(hang.text,
              "Send #41 from rank 1 (pid 101, GPU 1) to rank 2 (pid 102, GPU 2) has 8388608 bytes "
              "(ncclFloat32), and its Recv takes 4194304 bytes (ncclInt8).");
    EXPECT_EQ(hang.op, "Recv,Send");
    EXPECT_EQ(hang.situation, Situation::kPeerSizes);
  }
}

// The third Recv takes the data of two Sends, so that the last one waits for a Send too many.
TEST_F(PeerWaits, ARecvThatIsLargerThanItsSend) {
  job = JobOf(3);
  SendAll(&job, Numbers(6, 4 * kMiB));
  job.Advance(kMs);
  ReceiveAll(&job, {4 * kMiB, 4 * kMiB, 8 * kMiB, 4 * kMiB, 4 * kMiB, 4 * kMiB}, true);
  const Hang hang = ExpectHang(&job, HangVerdict::kMismatched, {1, 2});
  EXPECT_THAT(hang.text, HasSubstr("Send #3 from rank 1"));
}

// Small Sends end before their Recvs. The network has lost the fifth.
TEST_F(PeerWaits, SendsAheadOfTheirRecvsAreNoMismatch) {
  job = JobOf(3);
  SendAll(&job, {4, 8, 4, 8, 4, 8});
  job.Advance(kMs);
  ReceiveAll(&job, {4, 8, 4, 8, 4}, true);
  ExpectHang(&job, HangVerdict::kPointToPoint, {});
  SendAll(&job, {4, 8}, true);
  ExpectHang(&job, HangVerdict::kPointToPoint, {});
}

// Three ranks exchange shards, all with all in each launch. Rank 1 expects too much of rank 0.
TEST_F(PeerWaits, AnExchangeWithDifferentSizes) {
  for (const bool is_same : {true, false}) {
    job = JobOf(3);
    for (int rank = 0; rank < 3; ++rank) {
      const Numbers others = {rank == 0 ? 1u : 0u, rank == 2 ? 1u : 2u};
      for (int i = 0; i < 3; ++i) job.Call(kComm, rank, i == 0 ? "Recv" : "Send");
      Exchange(&job, rank, {}, others);
      job.Of(kComm, rank).peers = {others, others, true};
      for (const uint64_t other : others) {
        const bool differs = !is_same && rank == 1 && other == 0;
        const auto peer = static_cast<int32_t>(other);
        auto& calls = job.Of(kComm, rank).peer_calls;
        calls.push_back({peer, false, 1, {kMiB}, ""});
        calls.push_back({peer, true, 1, {differs ? 2 * kMiB : kMiB}, ""});
      }
    }
    if (is_same) {
      ExpectHang(&job, HangVerdict::kPointToPoint, {});
      continue;
    }
    const Hang hang = ExpectHang(&job, HangVerdict::kMismatched, {0, 1});
    EXPECT_THAT(hang.text, HasSubstr("has 1048576 bytes, and its Recv takes 2097152 bytes."));
    job.process(0).event_mask_changes = 1;  // calls may be missing
    ExpectHangNow(job, HangVerdict::kPointToPoint, {});
  }
}

// The rank has made all calls but the last.
TEST_F(PeerWaits, APeerThatHasNotCalledDespiteEqualSizes) {
  SendAll(&job, Numbers(41, 8 * kMiB), true);
  ReceiveAll(&job, Numbers(40, 8 * kMiB));
  ExpectHang(&job, HangVerdict::kRankNotCalled, {2});
}

// The sizes of the differing calls are no longer kept.
TEST_F(PeerWaits, AMismatchThatIsOlderThanTheKeptSizes) {
  Numbers sent(41, 8 * kMiB);
  sent[3] = 4 * kMiB;
  SendAll(&job, sent, true);
  ReceiveAll(&job, Numbers(41, 8 * kMiB));
  const Hang hang = ExpectHang(&job, HangVerdict::kMismatched, {1, 2});
  EXPECT_THAT(hang.text, HasSubstr("The first 41 Sends from rank 1 (pid 101, GPU 1) to rank 2 "
                                   "(pid 102, GPU 2) have 4194304 bytes fewer than their Recvs "
                                   "take."));
  // The Sends are so far ahead that not even their total is known.
  SendAll(&job, Numbers(14, 8 * kMiB), true);
  ExpectHang(&job, HangVerdict::kRankNotCalled, {2});
}

// Numbers of a hostile rank.
TEST_F(PeerWaits, CallsThatThereCannotBe) {
  SendAll(&job, Numbers(2, kMiB), true);
  ReceiveAll(&job, Numbers(2, kMiB));
  for (const uint64_t calls : {uint64_t{0}, UINT64_MAX}) {
    job.Of(kComm, 2).peer_calls[0].calls = calls;
    job.Advance(kHangAfter);
    EXPECT_NE(HangNow(job).verdict, HangVerdict::kMismatched);
  }
  job.Of(kComm, 2).peer_calls[0].totals.clear();
  EXPECT_NE(HangNow(job).verdict, HangVerdict::kMismatched);
}

// A rank may name a peer that there is not.
TEST_F(PeerWaits, PeersThatAreNotThere) {
  job = JobOf(3);
  Exchange(&job, 1, {7, UINT64_MAX}, {99});
  ExpectHang(&job, HangVerdict::kPointToPoint, {});
}

}  // namespace
}  // namespace nccl_pulse
