// A table of processes that hand over, with users that the test makes up: who is at the other end
// of a connection is asked of a function, which answers here with what the test says of it.
#ifndef TESTS_EXPORTER_PEER_TABLE_HARNESS_H_
#define TESTS_EXPORTER_PEER_TABLE_HARNESS_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "exporter/base/time.h"
#include "exporter/node/handover.h"
#include "exporter/node/peers/peer_table.h"
#include "metrics/header_writer.h"
#include "metrics/lane_writer.h"
#include "metrics/testing/test_segment.h"

namespace nccl_pulse {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;
using testing::UnorderedElementsAre;

inline constexpr uid_t kServer = 0;
inline constexpr uid_t kAnna = 1001;
inline constexpr uid_t kBert = 1002;

// Of the connection that is accepted next.
inline uid_t g_user = kServer;
inline pid_t g_pid = 4711;
inline bool g_known = true;

inline bool MadeUpCredentials(int /*connection*/, Credentials* credentials) {
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
           Send(connection_.get(), MakeMessage(MessageType::kHello),
                segment_.segment().memory().get());
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
      // Tests that run at once may have the same pid, in sandboxes of their own.
      std::random_device random;
      name_ = absl::StrCat("nccl-pulse-test-", random(), "-", random());
      EXPECT_EQ(ListenOn(name_, &listener_), 0);
      table_->Open("[::]:9410", 9410, nullptr);
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
    unread_ = set.unread_processes;
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
  uint64_t Unread() {
    Pids();
    return unread_;
  }

  PeerOptions options_;
  PeerTable::Time now_ = MonotonicNow();
  std::vector<std::string> log_;

 private:
  std::unique_ptr<PeerTable> table_;
  std::string name_;
  SharedDescriptor listener_;
  RejectionCounts rejected_{};
  uint64_t unread_ = 0;
};

}  // namespace nccl_pulse

#endif  // TESTS_EXPORTER_PEER_TABLE_HARNESS_H_
