// The table of processes that hand over, with users that the test makes up: who is at the other end
// of a connection is asked of a function, which answers here with what the test says of it.
#include "exporter/node/peer_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "exporter/node/handover.h"
#include "exporter/node/monotonic_clock.h"
#include "metrics/header_writer.h"
#include "metrics/lane_writer.h"
#include "metrics/testing/test_segment.h"

namespace nccl_pulse {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

constexpr uid_t kServer = 0;
constexpr uid_t kAnna = 1001;
constexpr uid_t kBert = 1002;

// Of the connection that is accepted next.
uid_t g_user = kServer;
pid_t g_pid = 4711;
bool g_known = true;

bool MadeUpCredentials(int /*connection*/, Credentials* credentials) {
  *credentials = {g_pid, g_user};
  return g_known;
}

// A process that hands over a segment of its own.
class Client {
 public:
  explicit Client(int histograms = 1) : segment_(8192, 2048), histograms_(histograms) {}

  void Identify(int pid, uint64_t comm_id, int rank, const std::string& labels = "") {
    labels_ = labels;
    Claim(pid);
    generation_ = segment_.AddCommunicator(0, comm_id, rank, "world");
    Grow(histograms_);
  }

  // What it says of itself, at any time.
  void Claim(int pid, uint32_t pid_namespace = 0) {
    HeaderWriter::Identity identity;
    identity.pid = pid;
    identity.pid_namespace = pid_namespace;
    identity.static_labels = labels_;
    HeaderWriter(segment_.segment()).Identify(identity);
  }
  void Finalize() { segment_.Record(0).Finalize(1); }
  void AddCommunicator(uint64_t comm_id, int rank) {
    segment_.AddCommunicator(1, comm_id, rank, "more");
  }

  void Grow(int histograms) {
    LaneWriter lane = segment_.Writer(0, generation_, LaneRole::kProgress);
    for (int i = 0; i < histograms && i < 120; ++i) {
      lane.Observe(LatencyKey(static_cast<NameId>(kAllReduceName), i % 10,
                              static_cast<LatencyKind>(1 + i / 10 % 5)),
                   1000, 1, 1);
    }
  }

  bool Connect(const std::string& name) {
    return ConnectTo(name, geteuid(), &connection_) == 0 &&
           Send(connection_.get(), MakeMessage(MessageType::kHello), segment_.segment().fd());
  }
  void Close() { connection_.Close(); }

  // All that the server has said so far.
  std::vector<std::string> Answers() {
    std::vector<std::string> answers;
    while (true) {
      HandoverMessage message;
      SharedDescriptor none;
      std::string error;
      const Received received = Receive(connection_.get(), &message, &none, &error);
      if (received == Received::kClosed) answers.emplace_back("closed");
      if (received != Received::kMessage) return answers;
      if (message.type == MessageType::kWelcome) answers.emplace_back("welcome");
      if (message.type == MessageType::kRefused) answers.push_back(message.Text());
    }
  }

 private:
  TestSegment segment_;
  int histograms_;
  std::string labels_;
  uint32_t generation_ = 0;
  SharedDescriptor connection_;
};

class PeerTableTest : public ::testing::Test {
 protected:
  PeerTableTest() {
    g_known = true;
    g_pid = 4711;
    options_.agent = true;
    options_.user = kServer;
    options_.credentials = MadeUpCredentials;
    options_.pid_namespace = 0;
    options_.keep = std::chrono::minutes(10);
    options_.keep_processes = 100;
  }

  PeerTable& table() {
    if (table_ == nullptr) {
      table_ = std::make_unique<PeerTable>(
          options_, [this](LogLevel, const std::string& line) { log_.push_back(line); });
      name_ = "nccl-pulse-test-" + std::to_string(getpid()) + "-" + std::to_string(++tables_);
      EXPECT_EQ(ListenOn(name_, &listener_), 0);
      table_->Open("[::]:9410", 9410, -1);
    }
    return *table_;
  }

  std::unique_ptr<Client> Join(uid_t user, int pid, uint64_t comm_id, int histograms = 1,
                               int rank = 0, uint32_t pid_namespace = 0) {
    table();
    auto client = std::make_unique<Client>(histograms);
    client->Identify(pid, comm_id, rank);
    client->Claim(pid, pid_namespace);
    g_user = user;
    EXPECT_TRUE(client->Connect(name_));
    table().Accept(listener_.get(), now_);
    table().EndRound();
    return client;
  }

  // Says nothing yet.
  std::unique_ptr<SharedDescriptor> Connect(uid_t user) {
    table();
    auto connection = std::make_unique<SharedDescriptor>();
    g_user = user;
    EXPECT_EQ(ConnectTo(name_, geteuid(), connection.get()), 0);
    now_ += std::chrono::milliseconds(1);
    table().Accept(listener_.get(), now_);
    return connection;
  }

  // What has come from the connections. True when somebody who may has asked for the port.
  bool HandleAll() {
    std::vector<pollfd> polled;
    table().AppendPolled(&polled);
    poll(polled.data(), polled.size(), 0);
    table().Handle(polled.data(), now_);
    return table().EndRound();
  }

  std::vector<int> Pids() {
    SnapshotSet set;
    table().Read(&set, now_);
    rejected_ = set.rejected;
    std::vector<int> pids;
    for (const ProcessSnapshot& process : set.processes) pids.push_back(process.pid);
    return pids;
  }
  // With the ranks that each has in its communicators.
  std::vector<std::pair<int, std::vector<int>>> Ranks() {
    SnapshotSet set;
    table().Read(&set, now_);
    std::vector<std::pair<int, std::vector<int>>> ranks;
    for (const ProcessSnapshot& process : set.processes) {
      ranks.emplace_back(process.pid, std::vector<int>());
      for (const auto& each : process.communicators) ranks.back().second.push_back(each.rank);
    }
    return ranks;
  }
  uint64_t Rejected(Rejection reason) {
    Pids();
    return rejected_[static_cast<std::size_t>(reason)];
  }

  PeerOptions options_;
  PeerTable::Time now_ = MonotonicNow();
  std::vector<std::string> log_;

 private:
  static int tables_;
  std::unique_ptr<PeerTable> table_;
  std::string name_;
  SharedDescriptor listener_;
  RejectionCounts rejected_{};
};
int PeerTableTest::tables_ = 0;

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
  EXPECT_THAT(log_, ElementsAre(HasSubstr("the histograms of finalized communicators are left")));
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

// --- Claims ---

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

// --- The log ---

TEST_F(PeerTableTest, NamesTheFirstOfAMinuteAndCountsTheOthers) {
  options_.max_members = 1;
  std::vector<std::unique_ptr<Client>> clients;
  for (int pid = 1; pid <= 6; ++pid) clients.push_back(Join(kAnna, pid, pid));
  EXPECT_THAT(log_, ElementsAre(HasSubstr("process 4711 of user 1001 was refused")));
  EXPECT_EQ(Rejected(Rejection::kNoRoom), 5u);
}

}  // namespace
}  // namespace nccl_pulse
