// Commands to a process: who may give them, what they do, and what is left behind.
#include "exporter/control/control_socket.h"

#include <dirent.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "exporter/base/time.h"
#include "exporter/control/control_client.h"
#include "tests/prelude/threads.h"

namespace nccl_pulse {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::size_t OpenDescriptors() {
  std::size_t count = 0;
  DIR* folder = opendir("/proc/self/fd");
  while (readdir(folder) != nullptr) ++count;
  closedir(folder);
  return count;
}

bool AsStranger(int connection, Credentials* credentials) {
  const bool is_known = PeerCredentials(connection, credentials);
  credentials->user = geteuid() + 1;
  return is_known;
}

bool AsRoot(int connection, Credentials* credentials) {
  const bool is_known = PeerCredentials(connection, credentials);
  credentials->user = 0;
  return is_known;
}

// Asked of this process.
ControlQuestion QuestionOf(std::vector<HandoverMessage> commands, milliseconds patience) {
  ControlQuestion question;
  question.commands = std::move(commands);
  question.pids = {getpid()};
  question.patience = patience;
  return question;
}

class ControlSocketTest : public ::testing::Test {
 protected:
  ControlSocketTest() {
    values_.Add(LiveSetting::kHangSeconds, 10, /*from_environment=*/true, [this](double value) {
      hang_seconds_ = value;
      return std::string();
    });
    values_.Add(LiveSetting::kNetworkWindow, 1, false,
                [](double) { return std::string("not while the moon is full"); });
  }
  ~ControlSocketTest() override {
    Stop();
    socket_.Close();
  }

  void Open(bool (*credentials)(int, Credentials*) = PeerCredentials) {
    ControlSocket::Options options;
    options.values = &values_;
    options.owner = OwnerWords("4711");
    options.log = [this](LogLevel level, const std::string& message) {
      log_.emplace_back((level == LogLevel::kWarning ? "W " : "I ") + message);
    };
    options.count = [this](CommandResult result) { ++counts_[result]; };
    options.credentials = credentials;
    ASSERT_TRUE(socket_.Open(options));
  }
  // Rounds on a thread of their own, as in a process, until Stop.
  void Run() {
    thread_ = std::thread([this] {
      while (!stopping_) {
        socket_.Round(MonotonicNow());
        Pause(milliseconds(1));
      }
    });
  }
  void Stop() {
    stopping_ = true;
    if (thread_.joinable()) thread_.join();
  }
  static ControlAnswer Ask(std::vector<HandoverMessage> commands,
                           milliseconds patience = seconds(60)) {
    const std::vector<ControlAnswer> answers =
        AskProcesses(QuestionOf(std::move(commands), patience));
    return answers.size() == 1 ? answers.front() : ControlAnswer{-1, 0, "", {}, "not one answer"};
  }

  LiveValues values_;
  ControlSocket socket_;
  double hang_seconds_ = 10;
  std::map<CommandResult, int> counts_;
  std::vector<std::string> log_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

TEST_F(ControlSocketTest, SetsAndLists) {
  Open();
  Run();
  const ControlAnswer answer =
      Ask({MakeSet("HANG_SECONDS=30"), MakeSet("nccl_pulse_hang_seconds=31"),
           MakeMessage(MessageType::kListSettings)});
  Stop();
  EXPECT_EQ(answer.problem, "");
  EXPECT_EQ(answer.pid, getpid());
  ASSERT_EQ(answer.replies.size(), 3u);
  EXPECT_EQ(answer.replies[0].text, "HANG_SECONDS=30 (was 10)");
  EXPECT_EQ(answer.replies[1].text, "HANG_SECONDS=31 (was 30)");
  EXPECT_EQ(answer.replies[2].text, "job 4711");
  EXPECT_EQ(answer.name, socket_.name());
  EXPECT_THAT(answer.replies[2].lines,
              ElementsAre("NETWORK_WINDOW 1 default",
                          "HANG_SECONDS 31 set " + std::to_string(geteuid()) + " 0"));
  EXPECT_EQ(hang_seconds_, 31);
  EXPECT_EQ(values_.changed(), 1u << static_cast<int>(LiveSetting::kHangSeconds));
  EXPECT_EQ(counts_[CommandResult::kDone], 2);
  ASSERT_EQ(log_.size(), 2u);
  EXPECT_THAT(log_[0], HasSubstr("W set: HANG_SECONDS=30 (was 10), by user"));
}

TEST_F(ControlSocketTest, RefusesWhatCannotBeSet) {
  Open();
  Run();
  const ControlAnswer answer =
      Ask({MakeSet("LABELS=a=b"), MakeSet("HANG_SECONDS=0"), MakeSet("HANG_SECONDS=86401"),
           MakeSet("HANG_SECONDS"), MakeSet("HANG_SECONDS=20", kMaxLasting + seconds(1)),
           MakeSet("NETWORK_WINDOW=2", seconds(1)), MakeSet("LOG_LEVEL=info")});
  Stop();
  ASSERT_EQ(answer.replies.size(), 7u);
  for (int i = 0; i < 6; ++i) EXPECT_EQ(answer.replies[i].type, MessageType::kRefused) << i;
  EXPECT_THAT(answer.replies[0].text,
              HasSubstr("\"LABELS\" cannot be set while a job runs; `pulse help"));
  EXPECT_THAT(answer.replies[1].text, HasSubstr("must be a number from 1 to 86400"));
  EXPECT_THAT(answer.replies[5].text, HasSubstr("the moon is full"));
  EXPECT_EQ(answer.replies[6].type, MessageType::kNotHere) << "it has no such setting";
  EXPECT_EQ(hang_seconds_, 10);
  EXPECT_EQ(values_.changed(), 0u);
  EXPECT_EQ(counts_[CommandResult::kRefused], 7);
  EXPECT_EQ(counts_[CommandResult::kDone], 0);
}

TEST_F(ControlSocketTest, AnotherUserIsRefusedAndNamedOnce) {
  Open(AsStranger);
  Run();
  for (int i = 0; i < 3; ++i) {
    const ControlAnswer answer = Ask({MakeSet("HANG_SECONDS=30")});
    for (const ControlReply& reply : answer.replies) EXPECT_EQ(reply.type, MessageType::kRefused);
  }
  Stop();
  EXPECT_EQ(hang_seconds_, 10);
  EXPECT_EQ(counts_[CommandResult::kForeignUser], 3);
  EXPECT_EQ(counts_[CommandResult::kDone], 0);
  ASSERT_EQ(log_.size(), 1u);
  EXPECT_THAT(log_[0], HasSubstr("was refused: only its own user and root may change settings"));
}

TEST_F(ControlSocketTest, RootIsTaken) {
  Open(AsRoot);
  Run();
  EXPECT_EQ(Ask({MakeSet("HANG_SECONDS=30")}).problem, "");
  Stop();
  EXPECT_EQ(hang_seconds_, 30);
}

TEST_F(ControlSocketTest, SpellsFractionsOfSeconds) {
  EXPECT_EQ(SpellLiveValue(LiveSetting::kHangSeconds, 1.5), "1.5") << "of --hang-after=1500ms";
  EXPECT_EQ(SpellLiveValue(LiveSetting::kHangSeconds, 86400), "86400");
  EXPECT_EQ(SpellLiveValue(LiveSetting::kTimedLaunches, 1000000), "1000000");
}

// A process that was stopped goes on when nobody waits for it any more.
TEST_F(ControlSocketTest, WhatNobodyWaitsForIsNotDone) {
  Open();
  const ControlAnswer answer = Ask({MakeSet("HANG_SECONDS=30")}, milliseconds(50));
  EXPECT_THAT(answer.problem, HasSubstr("it did not answer within 50 ms"));
  EXPECT_THAT(answer.replies, IsEmpty());
  socket_.Round(MonotonicNow());
  EXPECT_EQ(hang_seconds_, 10);
  EXPECT_EQ(counts_[CommandResult::kAbandoned], 1);
  EXPECT_EQ(counts_[CommandResult::kDone], 0);
}

TEST_F(ControlSocketTest, GoesBackByItself) {
  Open();
  const ControlSocket::Time now = MonotonicNow();
  LiveCommand command;
  std::string error;
  ASSERT_TRUE(ParseLiveCommand("HANG_SECONDS=30", &command, &error));
  ASSERT_EQ(values_.Set(command, seconds(60), 7, now, 1000000000), "");
  EXPECT_THAT(values_.Lines(), ElementsAre("NETWORK_WINDOW 1 default", "HANG_SECONDS 30 set 7 61"));
  // Set again meanwhile: what it goes back to is still the start.
  command.value = 40;
  ASSERT_EQ(values_.Set(command, seconds(60), 7, now, 1000000000), "");
  socket_.Round(now + milliseconds(59999));
  EXPECT_EQ(hang_seconds_, 40);
  socket_.Round(now + milliseconds(60000));
  EXPECT_EQ(hang_seconds_, 10);
  EXPECT_EQ(values_.changed(), 0u);
  EXPECT_THAT(values_.Lines(),
              ElementsAre("NETWORK_WINDOW 1 default", "HANG_SECONDS 10 environment"));
  ASSERT_EQ(log_.size(), 1u);
  EXPECT_EQ(log_[0], "W HANG_SECONDS is 10 again: the time limit of its change has passed");
}

TEST_F(ControlSocketTest, ForGoodAfterForAWhileStays) {
  const ControlSocket::Time now = MonotonicNow();
  LiveCommand command{LiveSetting::kHangSeconds, false, 30};
  ASSERT_EQ(values_.Set(command, seconds(1), 0, now, 0), "");
  ASSERT_EQ(values_.Set(command, milliseconds(0), 0, now, 0), "");
  EXPECT_THAT(values_.Expire(now + std::chrono::hours(1000)), IsEmpty());
  EXPECT_EQ(hang_seconds_, 30);
  command.is_default = true;
  ASSERT_EQ(values_.Set(command, milliseconds(0), 0, now, 0), "");
  EXPECT_EQ(hang_seconds_, 10);
  EXPECT_EQ(values_.changed(), 0u);
}

TEST_F(ControlSocketTest, AThousandLoseNoneAndLeaveNothingBehind) {
  Open();
  const std::size_t before = OpenDescriptors();
  Run();
  constexpr int kClients = 10, kEach = 100;
  std::atomic<int> done{0};
  Threads(kClients, [&done](int) {
    const std::vector<HandoverMessage> commands(kEach, MakeSet("HANG_SECONDS=30"));
    for (const ControlReply& reply : Ask(commands).replies) {
      done += reply.type == MessageType::kDone ? 1 : 0;
    }
  }).Join();
  Stop();
  EXPECT_EQ(done, kClients * kEach);
  EXPECT_EQ(counts_[CommandResult::kDone], kClients * kEach);
  socket_.Round(MonotonicNow());  // sees that they have left
  EXPECT_EQ(OpenDescriptors(), before);
}

// Who says nothing does not keep others out for long.
TEST_F(ControlSocketTest, SilentClientsAreClosed) {
  Open();
  std::vector<SharedDescriptor> silent(ControlSocket::kMaxClients);
  for (SharedDescriptor& each : silent) ASSERT_EQ(ConnectTo(socket_.name(), geteuid(), &each), 0);
  const ControlSocket::Time now = MonotonicNow();
  socket_.Round(now);
  SharedDescriptor late;
  ASSERT_EQ(ConnectTo(socket_.name(), geteuid(), &late), 0);
  ASSERT_TRUE(Send(late.get(), MakeSet("HANG_SECONDS=30")));
  socket_.Round(now + milliseconds(1));
  EXPECT_EQ(hang_seconds_, 10) << "there is no place for it yet";
  socket_.Round(now + ControlSocket::kClientTimeout);
  socket_.Round(now + ControlSocket::kClientTimeout);
  EXPECT_EQ(hang_seconds_, 30);
  for (SharedDescriptor& each : silent) each.Close();
  late.Close();
}

TEST_F(ControlSocketTest, RefusesOtherMessages) {
  Open();
  for (const std::size_t bytes :
       {std::size_t{0}, std::size_t{7}, kMessageBytes, std::size_t{4096}}) {
    SharedDescriptor peer;
    ASSERT_EQ(ConnectTo(socket_.name(), geteuid(), &peer), 0);
    const std::string garbage(bytes, 'x');
    send(peer.get(), garbage.data(), garbage.size(), MSG_NOSIGNAL);
    socket_.Round(MonotonicNow());
    peer.Close();
  }
  SharedDescriptor peer;
  ASSERT_EQ(ConnectTo(socket_.name(), geteuid(), &peer), 0);
  ASSERT_TRUE(Send(peer.get(), MakeMessage(MessageType::kHello)));
  socket_.Round(MonotonicNow());
  peer.Close();
  EXPECT_EQ(counts_[CommandResult::kRefused], 4) << "all but the empty one, which is a goodbye";
  EXPECT_EQ(hang_seconds_, 10);
}

// ---- who asks, when others are hostile ----------------------------------------------------------

bool FromElsewhere(int connection, Credentials* credentials) {
  const bool is_known = PeerCredentials(connection, credentials);
  credentials->pid = 0;  // what the kernel says of a PID namespace that is not seen from here
  return is_known;
}

std::string NameOfOwn(std::size_t tag) {
  return ControlNamePrefix(geteuid()) + std::to_string(getpid()) + "-" + std::to_string(tag);
}

TEST(ControlClientTest, WhoAnswersWithoutEndIsNotListenedTo) {
  SharedDescriptor listener;
  ASSERT_EQ(ListenOn(NameOfOwn(1), &listener), 0);
  std::thread peer([&listener] {
    int connection = -1;
    while ((connection = accept(listener.get(), nullptr, nullptr)) < 0) Pause(milliseconds(1));
    HandoverMessage line = MakeMessage(MessageType::kSetting);
    line.SetText("HANG_SECONDS 30 default");
    // Until the other side has had enough.
    while (send(connection, &line, sizeof(line), MSG_NOSIGNAL) > 0) {
    }
    close(connection);
  });
  const std::vector<ControlAnswer> answers =
      AskProcesses(QuestionOf({MakeMessage(MessageType::kListSettings)}, seconds(20)));
  peer.join();
  listener.Close();
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_EQ(answers[0].problem, "it answers with more than 64 lines");
}

TEST(ControlClientTest, AUserHasABoundedNumberOfProcesses) {
  std::vector<SharedDescriptor> listeners(300);
  for (std::size_t i = 0; i < listeners.size(); ++i) {
    ASSERT_EQ(ListenOn(NameOfOwn(i + 1), &listeners[i]), 0);
  }
  const std::vector<ControlAnswer> answers =
      AskProcesses(QuestionOf({MakeSet("HANG_SECONDS=30")}, milliseconds(1)));
  for (SharedDescriptor& each : listeners) each.Close();
  ASSERT_EQ(answers.size(), 257u);
  int refused = 0;
  for (const ControlAnswer& answer : answers) {
    refused += answer.problem.find("has more than 256 processes") != std::string::npos ? 1 : 0;
  }
  EXPECT_EQ(refused, 1);
}

// Its pid there may be that of another process here.
TEST_F(ControlSocketTest, WhoIsNotSeenFromHereHasNoPid) {
  Open();
  Run();
  ControlQuestion question = QuestionOf({MakeSet("HANG_SECONDS=30")}, seconds(20));
  question.credentials = FromElsewhere;
  const std::vector<ControlAnswer> answers = AskProcesses(question);
  Stop();
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_THAT(answers[0].problem, HasSubstr("not an NCCL Pulse process"));
  EXPECT_EQ(hang_seconds_, 10);
}

// In a container a process has another pid than here: its own one and its namespace name it.
TEST_F(ControlSocketTest, IsAskedByWhatItCallsItself) {
  Open();
  Run();
  ControlQuestion question = QuestionOf({MakeSet("HANG_SECONDS=30")}, seconds(20));
  question.pids.clear();
  question.processes = {{getpid(), OwnPidNamespace() + 1}};
  const std::vector<ControlAnswer> others = AskProcesses(question);
  const double unchanged = hang_seconds_;
  question.processes = {{getpid(), OwnPidNamespace()}};
  const std::vector<ControlAnswer> own = AskProcesses(question);
  Stop();
  ASSERT_EQ(others.size(), 1u);
  EXPECT_THAT(others[0].problem, HasSubstr("in another container"));
  EXPECT_EQ(unchanged, 10);
  ASSERT_EQ(own.size(), 1u);
  EXPECT_EQ(own[0].problem, "");
  EXPECT_EQ(own[0].pid, getpid());
  EXPECT_EQ(hang_seconds_, 30);
}

// The name goes with the descriptors.
TEST_F(ControlSocketTest, ClosesAll) {
  Open();
  EXPECT_FALSE(IsFree(socket_.name()));
  socket_.Close();
  EXPECT_TRUE(IsFree(socket_.name()));
  EXPECT_THAT(Ask({MakeSet("HANG_SECONDS=30")}).problem, HasSubstr("not an NCCL Pulse process"));
}

}  // namespace
}  // namespace nccl_pulse
