#include "exporter/node/node.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "exporter/node/handover.h"

namespace nccl_pulse {
namespace {

using testing::HasSubstr;

// What a process hands over, as far as it does not come to that.
class Memory {
 public:
  Memory() {
    const ForkGuard guard;
    descriptor_.Set(memfd_create("test", MFD_CLOEXEC));
  }
  ~Memory() { descriptor_.Close(); }
  const SharedDescriptor& descriptor() const { return descriptor_; }

 private:
  SharedDescriptor descriptor_;
};

// Who has the name does not answer.
class NodeWithASilentServer : public testing::Test {
 protected:
  NodeWithASilentServer() {
    constexpr uint16_t kPort = 39410;
    options_.listen_address = "127.0.0.1:" + std::to_string(kPort);
    options_.memory = &memory_.descriptor();
    EXPECT_EQ(ListenOn(HandoverName(geteuid(), {"127.0.0.1", kPort, ""}), &silent_), 0);
  }
  ~NodeWithASilentServer() override { silent_.Close(); }

  const std::string busy_ = ", process " + std::to_string(getpid()) + " is busy";
  const Memory memory_;
  NodeOptions options_;
  SharedDescriptor silent_;
  std::string error_;
};

TEST_F(NodeWithASilentServer, DoesNotNameAnAddressThatItDoesNotKnow) {
  Node node(options_, nullptr);
  ASSERT_TRUE(node.Open(&error_)) << error_;
  EXPECT_FALSE(node.is_settled());
  EXPECT_EQ(node.address(), "");
  node.Close();
}

// One that runs and does not come to it is not said to be stopped.
TEST_F(NodeWithASilentServer, AnAgentSaysThatTheServerIsBusy) {
  options_.memory = nullptr;
  options_.peers.agent = true;
  Node node(options_, nullptr);
  EXPECT_FALSE(node.Open(&error_));
  EXPECT_THAT(error_, HasSubstr("does not answer" + busy_));
}

// Of a member, after as long as it waits for an answer.
TEST_F(NodeWithASilentServer, AMemberSaysThatTheServerIsBusy) {
  std::string log;
  Node node(options_, [&log](LogLevel, const std::string& line) { log += line + "\n"; });
  ASSERT_TRUE(node.Open(&error_)) << error_;
  std::vector<pollfd> polled;
  node.AppendPolled(&polled, true);
  ASSERT_EQ(polled.size(), 1u);
  polled.front().revents = 0;
  node.Handle(polled.data(), node.next() + kSilencePatience);
  EXPECT_THAT(log, HasSubstr("does not answer yet" + busy_));
  node.Close();
}

TEST(Node, NamesWhereItServes) {
  NodeOptions options;
  options.listen_address = "127.0.0.1:0";
  Node node(options, nullptr);
  std::string error;
  ASSERT_TRUE(node.Open(&error)) << error;
  EXPECT_TRUE(node.is_serving());
  EXPECT_EQ(node.address(), "127.0.0.1:" + std::to_string(node.port()));
  node.Close();
}

}  // namespace
}  // namespace nccl_pulse
