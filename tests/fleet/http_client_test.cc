// The client, against answers that the test makes up.
#include "exporter/fleet/http_client.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "exporter/base/gzip.h"
#include "exporter/fleet/resolver.h"

namespace nccl_pulse {
namespace {

using std::chrono::seconds;
using ::testing::HasSubstr;

constexpr seconds kPatience{30};

// Gives one answer to each connection, in this order, and keeps what was asked.
class Answers {
 public:
  explicit Answers(std::vector<std::string> answers) : answers_(std::move(answers)) {
    listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    EXPECT_EQ(bind(listener_, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(listen(listener_, 8), 0);
    EXPECT_EQ(getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size), 0);
    endpoint_.host = "127.0.0.1";
    endpoint_.port = ntohs(address.sin_port);
    thread_ = std::thread([this] { Serve(); });
  }
  ~Answers() { Asked(); }

  FleetAnswer Get() const {
    FleetClientOptions options;
    options.patience = kPatience;
    return Ask(endpoint_, "/x", options);
  }
  // Those who asked; nobody is answered from then on.
  const std::vector<std::string>& Asked() {
    if (thread_.joinable()) {
      shutdown(listener_, SHUT_RDWR);  // ends accept
      thread_.join();
      close(listener_);
    }
    return asked_;
  }

 private:
  void Serve() {
    for (const std::string& answer : answers_) {
      const int connection = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      if (connection < 0) return;
      std::string request;
      std::array<char, 4096> buffer;
      while (request.find("\r\n\r\n") == request.npos) {
        const ssize_t size = recv(connection, buffer.data(), buffer.size(), 0);
        if (size <= 0) break;
        request.append(buffer.data(), size);
      }
      asked_.push_back(request);
      send(connection, answer.data(), answer.size(), MSG_NOSIGNAL);
      close(connection);
    }
  }

  const std::vector<std::string> answers_;
  std::vector<std::string> asked_;
  Address endpoint_;
  int listener_ = -1;
  std::thread thread_;
};

std::string Page(const std::string& headers, const std::string& body) {
  return absl::StrCat("HTTP/1.1 200 OK\r\nContent-Length: ", body.size(), "\r\n", headers, "\r\n",
                      body);
}

TEST(HttpClient, AsksForGzipAndUnpacksIt) {
  const std::string text(100000, 'x');
  Answers server({Page("Content-Encoding: gzip\r\nAge: 17\r\n", *Gzip(text))});
  const FleetAnswer answer = server.Get();
  EXPECT_EQ(answer.body, text);
  EXPECT_EQ(answer.age, seconds(17));
  EXPECT_THAT(server.Asked().at(0), HasSubstr("\r\nAccept-Encoding: gzip\r\n"));
}

TEST(HttpClient, WhatIsNotCompressedIsTakenAsItIs) {
  Answers server({Page("Max-Age: 3\r\n", "text")});
  const FleetAnswer answer = server.Get();
  EXPECT_EQ(answer.body, "text");
  EXPECT_EQ(answer.age, seconds(0));
}

TEST(HttpClient, WhatCannotBeUnpackedIsNoAnswer) {
  const std::string packed = *Gzip(std::string(100000, 'x'));
  for (const std::string& body : {packed.substr(0, packed.size() - 9), std::string("no gzip")}) {
    Answers server({Page("Content-Encoding: gzip\r\n", body)});
    EXPECT_THAT(server.Get().error, HasSubstr("its answer cannot be unpacked"));
  }
}

TEST(HttpClient, ComesBackOnceWhenItIsTold) {
  const std::string busy = "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\n\r\n";
  Answers patient({busy, Page("", "text"), busy});
  const FleetAnswer answer = patient.Get();
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.body, "text");
  EXPECT_EQ(patient.Asked().size(), 2u);
  Answers always({busy, busy, busy});
  EXPECT_EQ(always.Get().status, 503);
  EXPECT_EQ(always.Asked().size(), 2u);
}

TEST(HttpClient, DoesNotComeBackLaterThanItMayWait) {
  for (const char* when : {"30", "99999999999", "-1", "soon", ""}) {
    Answers server({absl::StrCat("HTTP/1.1 503 No\r\nRetry-After: ", when, "\r\n\r\n"), "", ""});
    const FleetAnswer answer = server.Get();
    EXPECT_EQ(answer.status, 503);
    EXPECT_EQ(server.Asked().size(), 1u) << when;
  }
}

// No name server answers within no time.
TEST(ResolveHosts, TakesLocalhostAsThisMachineWhereNothingResolvesIt) {
  const auto hosts = ResolveHosts({"localhost", "x.invalid"}, std::chrono::milliseconds(0));
  EXPECT_NE(hosts.at("x.invalid").error, "");
  EXPECT_EQ(hosts.at("localhost").error, "");
  ASSERT_FALSE(hosts.at("localhost").addresses.empty());
  const int family = hosts.at("localhost").addresses[0].ss_family;
  EXPECT_TRUE(family == AF_INET || family == AF_INET6) << family;
}

}  // namespace
}  // namespace nccl_pulse
