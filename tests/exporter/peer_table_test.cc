// Who is taken, and who gives way when places or the page are full.
#include "exporter/node/peers/peer_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <memory>
#include <string>
#include <vector>

#include "exporter/node/user_log.h"
#include "tests/exporter/peer_table_harness.h"

namespace nccl_pulse {
namespace {

TEST_F(PeerTableTest, RootsAgentTakesEveryUser) {
  const auto own = Join(kServer, 1, 1);
  const auto anna = Join(kAnna, 2, 2);
  const auto bert = Join(kBert, 3, 3);
  EXPECT_THAT(Pids(), UnorderedElementsAre(1, 2, 3));
  EXPECT_THAT(bert->Answers(), ElementsAre("welcome"));
}

TEST_F(PeerTableTest, AServerOfAUserTakesItsOwnAndRootsProcessesOnly) {
  options_.user = kAnna;
  const auto own = Join(kAnna, 1, 1);
  const auto root = Join(0, 2, 2);
  const auto other = Join(kBert, 3, 3);
  EXPECT_THAT(Pids(), UnorderedElementsAre(1, 2));
  EXPECT_THAT(other->Answers(),
              ElementsAre("this server takes only processes of its own user", "closed"));
  EXPECT_EQ(Rejected(Rejection::kForeignUser), 1u);
}

// Every user's process asks at root's name first, for an agent: that is no trouble.
TEST_F(PeerTableTest, AJobOfRootsDeclinesOthersWithoutAWord) {
  options_.agent = false;
  const auto own = Join(0, 1, 1);
  const auto other = Join(kBert, 3, 3);
  EXPECT_THAT(Pids(), ElementsAre(1));
  EXPECT_THAT(other->Answers(),
              ElementsAre("this server takes only processes of its own user", "closed"));
  EXPECT_EQ(Rejected(Rejection::kForeignUser), 0u);
  EXPECT_THAT(log_, IsEmpty());
}

TEST_F(PeerTableTest, WhoIsNotKnownIsNotTaken) {
  table();
  g_known = false;
  const auto nobody = Join(kServer, 1, 1);
  EXPECT_THAT(Pids(), IsEmpty());
  EXPECT_EQ(Rejected(Rejection::kForeignUser), 1u);
}

TEST_F(PeerTableTest, OnlyItsUserAndRootMayAskForThePort) {
  options_.user = kAnna;
  options_.agent = false;
  for (const uid_t user : {kAnna, uid_t{0}}) {
    const auto connection = Connect(user);
    Send(connection->get(), MakeMessage(MessageType::kYield));
    EXPECT_TRUE(HandleAll()) << user;
    table().RefuseYield("not now");
  }
}

// Root's agent lets every user in; its port is nobody's to ask for but root's.
TEST_F(PeerTableTest, AnAgentsPortIsNotForItsUsersToAskFor) {
  const auto connection = Connect(kAnna);
  Send(connection->get(), MakeMessage(MessageType::kYield));
  EXPECT_FALSE(HandleAll());
  EXPECT_EQ(Rejected(Rejection::kForeignUser), 1u);
}

// --- Places ---

TEST_F(PeerTableTest, TakesExactlyAsManyAsItSays) {
  EXPECT_EQ(options_.max_members, 256);  // as docs/node-endpoint.md says
  options_.max_members = 3;
  std::vector<std::unique_ptr<Client>> clients;
  for (int pid = 1; pid <= 4; ++pid) clients.push_back(Join(kAnna, pid, pid));
  EXPECT_THAT(Pids(), UnorderedElementsAre(1, 2, 3));
  EXPECT_THAT(clients[3]->Answers(), ElementsAre("3 processes have handed over already", "closed"));
  EXPECT_EQ(Rejected(Rejection::kNoRoom), 1u);
}

TEST_F(PeerTableTest, ARejectedProcessIsUnreadWhileItLives) {
  options_.max_members = 1;
  const pid_t child = fork();  // before there are connections that it would keep open
  if (child == 0) {
    pause();
    _exit(0);
  }
  const std::unique_ptr<Client> first = Join(kAnna, 1, 1);
  g_pid = child;
  Join(kAnna, 2, 2);
  Join(kAnna, 2, 2);  // it tries again
  EXPECT_EQ(Unread(), 1u);
  first->Close();
  HandleAll();
  const std::unique_ptr<Client> second = Join(kAnna, 2, 2);
  EXPECT_EQ(Unread(), 0u);
  Join(kAnna, 3, 3);
  EXPECT_EQ(Unread(), 1u);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_EQ(Unread(), 0u);
  EXPECT_EQ(Rejected(Rejection::kNoRoom), 3u);
}

TEST_F(PeerTableTest, ARejectedProcessThatIsNotVisibleStaysUnread) {
  options_.max_members = 1;
  g_pid = 0;
  const std::unique_ptr<Client> first = Join(kAnna, 1, 1);
  Join(kAnna, 2, 2);
  first->Close();
  HandleAll();
  const std::unique_ptr<Client> another = Join(kAnna, 3, 3);
  EXPECT_EQ(Unread(), 1u);
}

TEST_F(PeerTableTest, AUserCannotTakeAllPlaces) {
  options_.max_members = 4;
  std::vector<std::unique_ptr<Client>> clients;
  for (int pid = 1; pid <= 4; ++pid) clients.push_back(Join(kAnna, pid, pid));
  clients.push_back(Join(kBert, 11, 11));
  clients.push_back(Join(kBert, 12, 12));
  // Even now: further ones of either are refused.
  clients.push_back(Join(kBert, 13, 13));
  clients.push_back(Join(kAnna, 5, 5));
  EXPECT_THAT(Pids(), UnorderedElementsAre(1, 2, 11, 12));
  EXPECT_THAT(clients[3]->Answers(),
              ElementsAre("welcome", HasSubstr("more than its share"), "closed"));
  EXPECT_THAT(log_.front(), HasSubstr("of user 1001 was refused: all 4 places are taken"));
}

TEST_F(PeerTableTest, ASilentFloodDisplacesItsOwn) {
  const auto berts = Connect(kBert);
  std::vector<std::unique_ptr<SharedDescriptor>> annas;
  for (int i = 0; i < 3 * kMaxSilent; ++i) annas.push_back(Connect(kAnna));
  const auto is_open = [](const SharedDescriptor& connection) {
    char byte = 0;
    return recv(connection.get(), &byte, 1, MSG_DONTWAIT) < 0;
  };
  EXPECT_TRUE(is_open(*berts));
  EXPECT_FALSE(is_open(*annas.front()));
  EXPECT_TRUE(is_open(*annas.back()));
}

// --- What is left of those that ended ---

TEST_F(PeerTableTest, AUserCannotPushOutWhatAnotherLeftBehind) {
  options_.keep_processes = 4;
  Join(kBert, 11, 11)->Close();
  HandleAll();
  for (int pid = 1; pid <= 10; ++pid) {
    Join(kAnna, pid, pid)->Close();
    HandleAll();
  }
  EXPECT_THAT(Pids(), UnorderedElementsAre(11, 8, 9, 10));
}

TEST_F(PeerTableTest, AUserCannotReplaceWhatAnotherLeftBehind) {
  Join(kBert, 11, 11)->Close();
  HandleAll();
  const auto anna = Join(kAnna, 11, 12);
  const auto again = Join(kBert, 11, 13);
  // Anna's says that it is Bert's process, and is refused; Bert's own replaces what it left.
  EXPECT_THAT(anna->Answers(), ElementsAre(HasSubstr("belonged to another user"), "closed"));
  EXPECT_THAT(Pids(), ElementsAre(11));
  EXPECT_THAT(again->Answers(), ElementsAre("welcome"));
}

// --- The page ---

TEST_F(PeerTableTest, OfAFullPageTheUserWithMostGivesWay) {
  options_.max_page_bytes = 2 << 20;
  const auto bert = Join(kBert, 11, 11, 20);
  std::vector<std::unique_ptr<Client>> clients;
  for (int pid = 1; pid <= 10; ++pid) clients.push_back(Join(kAnna, pid, pid, 50));
  const std::vector<int> pids = Pids();
  EXPECT_THAT(pids, ::testing::Contains(11));
  EXPECT_THAT(pids, ::testing::Contains(1));
  EXPECT_LT(pids.size(), 8u);
  EXPECT_EQ(Rejected(Rejection::kPageFull), 11 - pids.size());
  EXPECT_THAT(clients[9]->Answers(), ElementsAre(HasSubstr("the page is full"), "closed"));
}

// It was small when it came.
TEST_F(PeerTableTest, WhoGrowsBeyondTheShareGoes) {
  options_.max_page_bytes = 400 << 10;
  const auto bert = Join(kBert, 11, 11, 20);
  const auto anna = Join(kAnna, 1, 1, 1);
  EXPECT_THAT(Pids(), UnorderedElementsAre(1, 11));
  anna->Grow(100);
  EXPECT_THAT(Pids(), ElementsAre(11));
  EXPECT_EQ(Rejected(Rejection::kPageFull), 1u);
}

// All ranks stay, and what they have in use.
TEST_F(PeerTableTest, HistogramsOfFinalizedCommunicatorsGiveWayBeforeAProcess) {
  options_.max_page_bytes = 1 << 20;
  std::vector<std::unique_ptr<Client>> clients;
  for (int pid = 1; pid <= 2; ++pid) clients.push_back(Join(kAnna, pid, pid, 50));
  clients[1]->Finalize();
  Pids();  // a page is made
  clients.push_back(Join(kAnna, 3, 3, 50));
  const auto histograms = [&] {
    SnapshotSet set;
    table().Read(&set, now_);
    std::vector<std::pair<int, std::size_t>> histograms;
    for (const ProcessSnapshot& process : set.processes) {
      histograms.emplace_back(process.pid, process.communicators.front().latencies.size());
    }
    return histograms;
  };
  for (int i = 0; i < 3; ++i) {
    EXPECT_THAT(histograms(), UnorderedElementsAre(Pair(1, 50), Pair(2, 0), Pair(3, 50)));
  }
  EXPECT_EQ(Rejected(Rejection::kPageFull), 0u);
  EXPECT_THAT(log_, ElementsAre(HasSubstr("it leaves out histograms of finalized communicators")));
  // With room again they are back.
  clients[2]->Close();
  HandleAll();
  now_ += options_.keep;
  EXPECT_THAT(histograms(), UnorderedElementsAre(Pair(1, 50), Pair(2, 50)));
}

TEST_F(PeerTableTest, WhatIsOverGivesWayToWhatLives) {
  options_.max_page_bytes = 1 << 20;
  Join(kAnna, 1, 1, 50)->Close();
  HandleAll();
  EXPECT_THAT(Pids(), ElementsAre(1));
  std::vector<std::unique_ptr<Client>> clients;
  for (int pid = 2; pid <= 4; ++pid) clients.push_back(Join(kAnna, pid, pid, 50));
  const std::vector<int> pids = Pids();
  EXPECT_THAT(pids, ::testing::Not(::testing::Contains(1)));
  EXPECT_THAT(pids, ::testing::Contains(2));
}

// --- The log ---

TEST_F(PeerTableTest, WhoComesAndGoesDoesNotFillTheLog) {
  const auto lines_about_ends = [this] {
    return std::count_if(log_.begin(), log_.end(),
                         [](const std::string& line) { return line.find(" ended") != line.npos; });
  };
  for (int i = 0; i < 500; ++i) {
    Join(kAnna, 1000 + i, 0xa000 + i)->Close();
    HandleAll();
  }
  EXPECT_EQ(lines_about_ends(), UserLog::kMostLines);
  EXPECT_THAT(log_.back(), HasSubstr("further lines about user " + std::to_string(kAnna)));
  // Another user's, and those of the next minute, are not left out.
  Join(kBert, 1, 1)->Close();
  HandleAll();
  EXPECT_EQ(lines_about_ends(), UserLog::kMostLines + 1);
  now_ += std::chrono::minutes(1);
  Join(kAnna, 2, 2)->Close();
  HandleAll();
  EXPECT_EQ(lines_about_ends(), UserLog::kMostLines + 2);
}

TEST_F(PeerTableTest, NamesTheFirstOfAMinuteAndCountsTheOthers) {
  options_.max_members = 1;
  std::vector<std::unique_ptr<Client>> clients;
  for (int pid = 1; pid <= 6; ++pid) clients.push_back(Join(kAnna, pid, pid));
  EXPECT_THAT(log_, ElementsAre(HasSubstr("process 4711 of user 1001 was refused")));
  EXPECT_EQ(Rejected(Rejection::kNoRoom), 5u);
}

}  // namespace
}  // namespace nccl_pulse
