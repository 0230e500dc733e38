#include "exporter/node/node.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "exporter/node/handover.h"

namespace nccl_pulse {
namespace {

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

// Who has the name does not answer, as a server that is stopped.
TEST(Node, DoesNotNameAnAddressThatItDoesNotKnow) {
  constexpr uint16_t kPort = 39410;
  SharedDescriptor silent;
  ASSERT_EQ(ListenOn(HandoverName(geteuid(), {"127.0.0.1", kPort, ""}), &silent), 0);
  NodeOptions options;
  options.listen_address = "127.0.0.1:" + std::to_string(kPort);
  const Memory memory;
  options.memory = &memory.descriptor();
  Node node(options, nullptr);
  std::string error;
  ASSERT_TRUE(node.Open(&error)) << error;
  EXPECT_FALSE(node.is_settled());
  EXPECT_EQ(node.address(), "");
  node.Close();
  silent.Close();
}

// One that runs and does not come to it is not said to be stopped.
TEST(Node, AnAgentSaysThatTheServerIsBusy) {
  constexpr uint16_t kPort = 39411;
  SharedDescriptor silent;
  ASSERT_EQ(ListenOn(HandoverName(geteuid(), {"127.0.0.1", kPort, ""}), &silent), 0);
  NodeOptions options;
  options.listen_address = "127.0.0.1:" + std::to_string(kPort);
  options.peers.agent = true;
  Node node(options, nullptr);
  std::string error;
  EXPECT_FALSE(node.Open(&error));
  EXPECT_NE(error.find("does not answer, process " + std::to_string(getpid()) + " is busy"),
            std::string::npos)
      << error;
  silent.Close();
}

// Of a member, after as long as it waits for an answer.
TEST(Node, AMemberSaysThatTheServerIsBusy) {
  constexpr uint16_t kPort = 39412;
  SharedDescriptor silent;
  ASSERT_EQ(ListenOn(HandoverName(geteuid(), {"127.0.0.1", kPort, ""}), &silent), 0);
  NodeOptions options;
  options.listen_address = "127.0.0.1:" + std::to_string(kPort);
  const Memory memory;
  options.memory = &memory.descriptor();
  std::string log;
  Node node(options, [&log](LogLevel, const std::string& line) { log += line + "\n"; });
  std::string error;
  ASSERT_TRUE(node.Open(&error)) << error;
  std::vector<pollfd> polled;
  node.AppendPolled(&polled, true);
  ASSERT_EQ(polled.size(), 1u);
  polled.front().revents = 0;
  node.Handle(polled.data(), node.next() + kSilencePatience);
  EXPECT_NE(log.find("does not answer yet, process " + std::to_string(getpid()) + " is busy"),
            std::string::npos)
      << log;
  node.Close();
  silent.Close();
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
