#include "exporter/listener.h"

#include <fcntl.h>
#include <unistd.h>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/exporter/http_client.h"

namespace nccl_pulse {
namespace {

using testing::HasSubstr;

ListenAddress Parse(std::string_view text) {
  ListenAddress address;
  std::string error;
  EXPECT_TRUE(ParseListenAddress(text, &address, &error)) << error;
  return address;
}

TEST(ParseListenAddress, Good) {
  EXPECT_EQ(Parse(":9410").host, "");
  EXPECT_EQ(Parse(":9410").port, 9410);
  EXPECT_EQ(Parse("[::]:1").host, "::");
  EXPECT_EQ(Parse("[::1]:65535").port, 65535);
  EXPECT_EQ(Parse("10.1.2.3:0").host, "10.1.2.3");
  EXPECT_EQ(Parse("localhost:80").host, "127.0.0.1");
}

TEST(ParseListenAddress, Bad) {
  for (const char* text :
       {"", "9410", "host", ":", ":x", ":-1", ":+1", ": 1", ":65536", ":99999999999", "::1:9410",
        "[::1]", "[::1]9410", "[127.0.0.1]:1", "node-1:9410", "[]:1", "300.1.1.1:1", "[::1:1"}) {
    ListenAddress address;
    std::string error;
    EXPECT_FALSE(ParseListenAddress(text, &address, &error)) << text;
    EXPECT_THAT(error, HasSubstr(text));
  }
}

Listener Open(const ListenAddress& address) {
  Listener listener;
  std::string error;
  EXPECT_TRUE(OpenListener(address, &listener, &error)) << error;
  return listener;
}

TEST(OpenListener, SocketIsNonBlockingAndClosedOnExec) {
  const Listener listener = Open({"127.0.0.1", 0});
  EXPECT_NE(listener.port, 0);
  EXPECT_EQ(listener.address, "127.0.0.1:" + std::to_string(listener.port));
  EXPECT_TRUE(fcntl(listener.fd, F_GETFL) & O_NONBLOCK);
  EXPECT_TRUE(fcntl(listener.fd, F_GETFD) & FD_CLOEXEC);
  EXPECT_TRUE(Client(listener.port).connected());
  close(listener.fd);
}

TEST(OpenListener, NextFreePort) {
  const Listener first = Open({"127.0.0.1", 0});
  const Listener second = Open({"127.0.0.1", first.port});
  EXPECT_GT(second.port, first.port);
  EXPECT_LE(second.port, first.port + kFurtherPorts);
  close(first.fd);
  close(second.fd);
}

TEST(OpenListener, AllInterfacesIncludesIpv4AndMovesWhenOnlyThatIsTaken) {
  const Listener v4 = Open({"127.0.0.1", 0});
  const Listener all = Open({"", v4.port});
  EXPECT_GT(all.port, v4.port);
  EXPECT_TRUE(Client(all.port).connected());
  close(v4.fd);
  close(all.fd);
}

TEST(OpenListener, AddressOfAnotherMachine) {
  Listener listener;
  std::string error;
  EXPECT_FALSE(OpenListener({"192.0.2.1", 9410}, &listener, &error));  // TEST-NET-1
  EXPECT_EQ(error, "cannot listen on 192.0.2.1:9410: Cannot assign requested address");
}

TEST(OpenListener, LastPort) {
  const Listener last = Open({"127.0.0.1", 65535});
  Listener listener;
  std::string error;
  EXPECT_FALSE(OpenListener({"127.0.0.1", 65535}, &listener, &error));
  EXPECT_EQ(error, "cannot listen on 127.0.0.1:65535: Address already in use");
  close(last.fd);
}

}  // namespace
}  // namespace nccl_pulse
