#include "exporter/node.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <string>

#include "exporter/handover.h"

namespace nccl_pulse {
namespace {

// Who has the name does not answer, as a server that is stopped.
TEST(Node, DoesNotNameAnAddressThatItDoesNotKnow) {
  constexpr uint16_t kPort = 39410;
  SharedDescriptor silent;
  ASSERT_EQ(ListenOn(HandoverName(geteuid(), {"127.0.0.1", kPort, ""}), &silent), 0);
  NodeOptions options;
  options.listen_address = "127.0.0.1:" + std::to_string(kPort);
  options.memory = memfd_create("test", MFD_CLOEXEC);
  Node node(options, nullptr);
  std::string error;
  ASSERT_TRUE(node.Open(&error)) << error;
  EXPECT_FALSE(node.is_settled());
  EXPECT_EQ(node.address(), "");
  node.Close();
  silent.Close();
  close(options.memory);
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
