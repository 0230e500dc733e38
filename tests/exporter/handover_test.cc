#include "exporter/node/handover.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <string>

namespace nccl_pulse {
namespace {

class HandoverTest : public ::testing::Test {
 protected:
  HandoverTest() : name_("nccl-pulse-handover-test-" + std::to_string(getpid())) {
    EXPECT_EQ(ListenOn(name_, &listener_), 0);
  }
  ~HandoverTest() override { listener_.Close(); }

  const std::string name_;
  SharedDescriptor listener_;
};

// Anybody may take the name. What a process measures goes to the user that it expects there.
TEST_F(HandoverTest, AServerOfAnotherUserIsNotBelieved) {
  SharedDescriptor connection;
  EXPECT_EQ(ConnectTo(name_, geteuid() + 1, &connection), EPERM);
  EXPECT_LT(connection.get(), 0);
  EXPECT_EQ(ConnectTo(name_, geteuid(), &connection), 0);
  EXPECT_GE(connection.get(), 0);
}

TEST_F(HandoverTest, TheKernelSaysWhoItIs) {
  SharedDescriptor connection;
  ASSERT_EQ(ConnectTo(name_, geteuid(), &connection), 0);
  Credentials credentials;
  ASSERT_TRUE(PeerCredentials(connection.get(), &credentials));
  EXPECT_EQ(credentials.user, geteuid());
  EXPECT_EQ(credentials.pid, getpid());
  EXPECT_FALSE(PeerCredentials(-1, &credentials));
}

TEST_F(HandoverTest, NobodyThere) {
  SharedDescriptor connection;
  EXPECT_EQ(ConnectTo(name_ + "-not", geteuid(), &connection), ECONNREFUSED);
}

// A server that refuses at once has not read what was sent. The kernel then reports a reset first.
TEST_F(HandoverTest, ARefusalArrivesAlthoughTheHelloWasNotRead) {
  SharedDescriptor connection;
  ASSERT_EQ(ConnectTo(name_, geteuid(), &connection), 0);
  ASSERT_TRUE(Send(connection.get(), MakeMessage(MessageType::kHello)));
  const int server = accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
  ASSERT_GE(server, 0);
  HandoverMessage refusal = MakeMessage(MessageType::kRefused);
  refusal.SetText("not you");
  ASSERT_TRUE(Send(server, refusal));
  close(server);
  HandoverMessage message;
  SharedDescriptor memory;
  std::string error;
  ASSERT_EQ(Receive(connection.get(), &message, &memory, &error), Received::kMessage);
  EXPECT_EQ(message.type, MessageType::kRefused);
  EXPECT_EQ(message.Text(), "not you");
  EXPECT_EQ(Receive(connection.get(), &message, &memory, &error), Received::kClosed);
}

TEST(Handover, TheNumberOfEveryUnmappedUserIsNobodys) {
  constexpr char kAll[] = "         0          0 4294967295\n";
  constexpr char kSome[] = "         0       1000          1\n         1     100000      65536\n";
  EXPECT_TRUE(IsOneUser(0, "65534\n", kSome));
  EXPECT_TRUE(IsOneUser(1000, "65534\n", kSome));
  EXPECT_FALSE(IsOneUser(65534, "65534\n", kSome));
  EXPECT_FALSE(IsOneUser(99, "99\n", kSome));
  EXPECT_TRUE(IsOneUser(65534, "99\n", kSome));
  EXPECT_TRUE(IsOneUser(65534, "65534\n", kAll)) << "outside: the user nobody";
  EXPECT_FALSE(IsOneUser(65534, "", "")) << "not known";
}

TEST(Handover, AnUnmappedUserIsNotTakenForItself) {
  int pair[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
  const pid_t child = fork();
  if (child == 0) {
    if (unshare(CLONE_NEWUSER) != 0) _exit(2);  // nobody is mapped in it, not even this user
    Credentials credentials;
    const bool is_known = PeerCredentials(pair[0], &credentials);
    _exit(credentials.user == geteuid() && !is_known ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  close(pair[0]);
  close(pair[1]);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 2) GTEST_SKIP() << "no user namespaces here";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace nccl_pulse
