// A process that says it is, or has, what is another user's.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "exporter/node/peers/peer_table.h"
#include "tests/exporter/peer_table_harness.h"

namespace nccl_pulse {
namespace {

TEST_F(PeerTableTest, AUsersProcessCannotPassForAnothers) {
  const auto bert = Join(kBert, 11, 11);
  const auto anna = Join(kAnna, 11, 12);
  EXPECT_THAT(Pids(), ElementsAre(11));
  EXPECT_EQ(Rejected(Rejection::kForeignClaim), 1u);
  EXPECT_THAT(anna->Answers(), ElementsAre("welcome", HasSubstr("which is user 1002's"), "closed"));
}

// The kernel knows whose a pid is, so claiming it in advance does not help.
TEST_F(PeerTableTest, AUserCannotClaimThePidsOfOthersInAdvance) {
  const auto anna = Join(kAnna, 4712, 12);
  g_pid = 4712;
  const auto bert = Join(kBert, 4712, 11);
  EXPECT_THAT(Pids(), ElementsAre(4712));
  EXPECT_THAT(bert->Answers(), ElementsAre("welcome"));
  EXPECT_THAT(anna->Answers(), ElementsAre("welcome", HasSubstr("which is user 1002's"), "closed"));
}

// A process in a container never says the pid that the kernel tells, a hostile one beside it can.
TEST_F(PeerTableTest, InAContainerTooWhoCameFirstIsBelieved) {
  const auto bert = Join(kBert, 7, 0xc0ffee, 1, 3, 4026532000);
  EXPECT_THAT(Ranks(), ElementsAre(Pair(7, ElementsAre(3))));
  g_pid = 8000;
  const auto anna = Join(kAnna, 8000, 0xc0ffee, 1, 3);
  EXPECT_THAT(Ranks(), UnorderedElementsAre(Pair(7, ElementsAre(3)), Pair(8000, IsEmpty())));
  // The kernel's pid is none in that namespace.
  g_pid = 7;
  const auto same_pid = Join(kAnna, 7, 0xbad, 1, 3, 4026532000);
  EXPECT_THAT(Ranks(), UnorderedElementsAre(Pair(7, ElementsAre(3)), Pair(8000, IsEmpty())));
  EXPECT_THAT(same_pid->Answers(),
              ElementsAre("welcome", HasSubstr("which is user 1002's"), "closed"));
  EXPECT_THAT(bert->Answers(), ElementsAre("welcome"));
}

// An id alone: a rank that nobody here has would be waited for.
TEST_F(PeerTableTest, AUsersCommunicatorCannotPassForAnothers) {
  const auto bert = Join(kBert, 11, 0xc0ffee, 1, 3);
  const auto anna = Join(kAnna, 1, 0xc0ffee, 1, 3);
  const auto other_rank = Join(kAnna, 2, 0xc0ffee, 1, 4);
  EXPECT_THAT(Ranks(), UnorderedElementsAre(Pair(11, ElementsAre(3)), Pair(1, IsEmpty()),
                                            Pair(2, IsEmpty())));
  // However many pages are made.
  for (int i = 0; i < 5; ++i) EXPECT_EQ(Rejected(Rejection::kForeignClaim), 2u);
  EXPECT_THAT(log_, ElementsAre(HasSubstr("of user 1001 has communicators of another user, such "
                                          "as 0000000000c0ffee, which is user 1002's")));
}

// Whoever was there first writes into its memory what it has read on the page.
TEST_F(PeerTableTest, WhatIsAnothersAlreadyIsNotClaimedByWhoCameEarlier) {
  const auto anna = Join(kAnna, 1, 1);
  const auto bert = Join(kBert, 7, 0xc0ffee, 1, 3, 4026532000);
  Ranks();
  anna->AddCommunicator(0xc0ffee, 4);
  EXPECT_THAT(Ranks(), UnorderedElementsAre(Pair(1, ElementsAre(0)), Pair(7, ElementsAre(3))));
  anna->Claim(7, 4026532000);
  EXPECT_THAT(Ranks(), ElementsAre(Pair(7, ElementsAre(3))));
  EXPECT_THAT(bert->Answers(), ElementsAre("welcome"));
}

// What a process said in the end is checked, too.
TEST_F(PeerTableTest, WhatAUserLeavesBehindIsNotAnothers) {
  const auto bert = Join(kBert, 7, 0xc0ffee, 1, 3, 4026532000);
  const auto anna = Join(kAnna, 1, 1);
  const auto also = Join(kAnna, 2, 2);
  Ranks();
  anna->AddCommunicator(0xc0ffee, 4);
  also->Claim(7, 4026532000);
  anna->Close();
  also->Close();
  HandleAll();
  EXPECT_THAT(Ranks(), UnorderedElementsAre(Pair(1, ElementsAre(0)), Pair(7, ElementsAre(3))));
  // Nor does what is left of his become hers.
  bert->Close();
  HandleAll();
  const auto late = Join(kAnna, 3, 0xc0ffee, 1, 5);
  EXPECT_THAT(Ranks(), UnorderedElementsAre(Pair(1, ElementsAre(0)), Pair(7, ElementsAre(3)),
                                            Pair(3, IsEmpty())));
}

// An agent that keeps nothing still remembers for the diagnosis.
TEST_F(PeerTableTest, WhatIsRememberedForTheDiagnosisIsNoForeignClaim) {
  options_.keep_processes = 0;
  const auto bert = Join(kBert, 11, 0xc0ffee, 1, 3);
  Join(kAnna, 1, 0xc0ffee, 1, 4)->Close();
  HandleAll();
  SnapshotSet set;
  table().Read(&set, now_);
  ASSERT_EQ(set.ended.size(), 1u);
  EXPECT_THAT(set.ended.front().communicators, IsEmpty());
}

TEST_F(PeerTableTest, ACommunicatorIsFreeWhenItsUsersProcessesAreGone) {
  Join(kBert, 11, 0xc0ffee, 1, 3)->Close();
  HandleAll();
  const auto anna = Join(kAnna, 1, 0xc0ffee, 1, 3);
  EXPECT_THAT(Ranks(), UnorderedElementsAre(Pair(11, ElementsAre(3)), Pair(1, IsEmpty())));
  now_ += options_.keep;
  EXPECT_THAT(Ranks(), ElementsAre(Pair(1, ElementsAre(3))));
}

// What the kernel says of a process in a container, beside what that says of itself.
TEST_F(PeerTableTest, TellsThePidThatAProcessHasHere) {
  options_.pid_namespace = 7;
  const auto one = Join(kAnna, 1, 0xc0ffee, 1, 0, /*pid_namespace=*/8);
  g_pid = 0;  // not seen from here
  const auto two = Join(kAnna, 1, 0xc0ffee, 1, 1, /*pid_namespace=*/9);
  SnapshotSet set;
  table().Read(&set, now_);
  ASSERT_EQ(set.processes.size(), 2u);
  for (const ProcessSnapshot& process : set.processes) {
    EXPECT_EQ(process.pid, 1);
    EXPECT_EQ(process.seen_pid, process.pid_namespace == 8 ? 4711 : 0);
    EXPECT_EQ(process.seen_in, 7u);
  }
}

// Not what a process says of itself, and also of one that has ended.
TEST_F(PeerTableTest, TellsTheUserThatTheKernelKnows) {
  const auto one = Join(kAnna, 1, 1);
  Join(kBert, 2, 2)->Close();
  HandleAll();
  SnapshotSet set;
  table().Read(&set, now_);
  ASSERT_EQ(set.processes.size(), 2u);
  for (const ProcessSnapshot& process : set.processes) {
    EXPECT_EQ(process.user, process.pid == 1 ? kAnna : kBert);
  }
}

// Two of one user's may: a communicator that is made again.
TEST_F(PeerTableTest, AUserMayClaimItsOwn) {
  const auto one = Join(kAnna, 1, 0xc0ffee, 1, 3);
  const auto two = Join(kAnna, 2, 0xc0ffee, 1, 3);
  const auto bert = Join(kBert, 3, 1);
  SnapshotSet set;
  table().Read(&set, now_);
  for (const ProcessSnapshot& process : set.processes) {
    EXPECT_EQ(process.communicators.size(), 1u);
  }
  EXPECT_EQ(Rejected(Rejection::kForeignClaim), 0u);
}

}  // namespace
}  // namespace nccl_pulse
