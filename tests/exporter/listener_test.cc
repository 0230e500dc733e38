#include "exporter/node/listener.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>

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
  EXPECT_EQ(Parse("localhost").host, "127.0.0.1");
  EXPECT_EQ(Parse("localhost").port, 9410);
  EXPECT_EQ(Parse("10.1.2.3").host, "10.1.2.3");
  EXPECT_EQ(Parse("10.1.2.3").port, 9410);
  EXPECT_EQ(Parse("[::1]").host, "::1");
  EXPECT_EQ(Parse("[::1]").port, 9410);
  EXPECT_EQ(Parse("unix:/run/pulse:1.sock").path, "/run/pulse:1.sock");
  EXPECT_EQ(Parse(":9410").path, "");
}

TEST(ParseListenAddress, Bad) {
  for (const char* text : {"",
                           "9410",
                           "host",
                           ":",
                           ":x",
                           ":-1",
                           ":+1",
                           ": 1",
                           ":65536",
                           ":99999999999",
                           "::1:9410",
                           "::1",
                           "[]",
                           "[10.1.2.3]",
                           "10.1.2",
                           "[::1]9410",
                           "[127.0.0.1]:1",
                           "node-1:9410",
                           "[]:1",
                           "300.1.1.1:1",
                           "[::1:1",
                           "unix:",
                           "unix:relative",
                           "UNIX:/x"}) {
    ListenAddress address;
    std::string error;
    EXPECT_FALSE(ParseListenAddress(text, &address, &error)) << text;
    EXPECT_THAT(error, HasSubstr(text));
  }
}

TEST(SafeAddress, LetsNobodyInWhoWasToBeKeptOut) {
  for (const char* off : {"off", "OFF", "none", "No", "false", "0", "disabled"}) {
    EXPECT_TRUE(IsOff(off)) << off;
  }
  for (const char* on : {"", ":0", "00", "offf", "1", "on"}) EXPECT_FALSE(IsOff(on)) << on;
  for (const char* misspelt : {"", "offf", "http://127.0.0.1:9410", "eth0:9410", ":x", "9410"}) {
    EXPECT_EQ(SafeAddress(misspelt), "127.0.0.1:9410") << misspelt;
  }
  EXPECT_EQ(SafeAddress("unix:pulse.sock"), "off");
  EXPECT_EQ(SafeAddress("UNIX:/pulse.sock"), "off");
}

struct OpenListener : Listener {
  int fd = -1;  // the test's own
};

OpenListener Open(const ListenAddress& address) {
  OpenListener listener;
  SharedDescriptor socket;
  EXPECT_EQ(OpenAt(address, &socket, &listener), 0) << SpellAddress(address);
  EXPECT_TRUE(fcntl(socket.get(), F_GETFD) & FD_CLOEXEC);
  listener.fd = dup(socket.get());
  socket.Close();
  return listener;
}

int Refusal(const ListenAddress& address) {
  Listener listener;
  SharedDescriptor socket;
  const int error = OpenAt(address, &socket, &listener);
  EXPECT_EQ(socket.get(), -1);
  return error;
}

TEST(OpenAt, SocketIsNonBlockingAndClosedOnExec) {
  const OpenListener listener = Open({"127.0.0.1", 0, ""});
  EXPECT_NE(listener.port, 0);
  EXPECT_EQ(listener.address, "127.0.0.1:" + std::to_string(listener.port));
  EXPECT_TRUE(fcntl(listener.fd, F_GETFL) & O_NONBLOCK);
  EXPECT_TRUE(Client(listener.port).connected());
  close(listener.fd);
}

TEST(OpenAt, PortInUse) {
  const OpenListener first = Open({"127.0.0.1", 0, ""});
  EXPECT_EQ(Refusal({"127.0.0.1", first.port, ""}), EADDRINUSE);
  // Of all interfaces, one is taken.
  EXPECT_EQ(Refusal({"", first.port, ""}), EADDRINUSE);
  close(first.fd);
}

TEST(OpenAt, AllInterfacesIncludesIpv4) {
  const OpenListener all = Open({"", 0, ""});
  EXPECT_TRUE(Client(all.port).connected());
  close(all.fd);
}

TEST(OpenAt, AddressOfAnotherMachine) {
  EXPECT_EQ(Refusal({"192.0.2.1", 9410, ""}), EADDRNOTAVAIL);  // TEST-NET-1
}

TEST(OpenAt, UnixSocket) {
  // Short: a Unix socket's path has 107 bytes.
  const std::string path = "/tmp/pulse-" + std::to_string(getpid()) + ".sock";
  unlink(path.c_str());
  const OpenListener first = Open({"", 0, path});
  EXPECT_EQ(first.address, "unix:" + path);
  EXPECT_EQ(first.port, 0);
  EXPECT_EQ(Refusal({"", 0, path}), EADDRINUSE);
  close(first.fd);
  // Its listener is gone: replaced.
  const OpenListener second = Open({"", 0, path});
  close(second.fd);
  unlink(path.c_str());
  // A file of somebody else's is left alone.
  std::ofstream(path) << "precious";
  EXPECT_EQ(Refusal({"", 0, path}), EEXIST);
  EXPECT_EQ(access(path.c_str(), F_OK), 0);
  unlink(path.c_str());
}

}  // namespace
}  // namespace nccl_pulse
