// The client, against answers that the test makes up.
#include "exporter/fleet/http_client.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "exporter/base/gzip.h"
#include "exporter/fleet/http_exchange.h"
#include "exporter/fleet/resolver.h"

namespace nccl_pulse {
namespace {

using std::chrono::seconds;
using ::testing::HasSubstr;

constexpr seconds kPatience{30};

// Gives one answer to each connection, in this order, and keeps what was asked.
class Answers {
 public:
  // `holds`: keeps each connection until the client closes it.
  explicit Answers(std::vector<std::string> answers, bool holds = false)
      : answers_(std::move(answers)), holds_(holds) {
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

  FleetAnswer Get(FleetClientOptions options = {}) const {
    options.patience = kPatience;
    return Ask(endpoint_, "/x", options);
  }
  const Address& endpoint() const { return endpoint_; }
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
      while (holds_ && recv(connection, buffer.data(), buffer.size(), 0) > 0) {
      }
      close(connection);
    }
  }

  const std::vector<std::string> answers_;
  const bool holds_;
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

sockaddr_storage Loopback(uint32_t host, uint16_t port) {
  sockaddr_storage storage{};
  auto* address = reinterpret_cast<sockaddr_in*>(&storage);
  address->sin_family = AF_INET;
  address->sin_addr.s_addr = htonl(INADDR_LOOPBACK + host);
  address->sin_port = htons(port);
  return storage;
}

// A full queue of connections drops further ones, as a firewall does.
TEST(HttpClient, TriesTheNextAddressWhereTheFirstDropsPackets) {
  Answers server({Page("", "text")});
  const uint16_t port = server.endpoint().port;
  const sockaddr_storage full = Loopback(1, port);
  const auto* address = reinterpret_cast<const sockaddr*>(&full);
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  ASSERT_EQ(bind(listener, address, sizeof(sockaddr_in)), 0);
  ASSERT_EQ(listen(listener, 0), 0);
  std::vector<int> sockets = {listener};
  for (int i = 0; i < 4; ++i) {
    sockets.push_back(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    static_cast<void>(connect(sockets.back(), address, sizeof(sockaddr_in)));
  }
  FleetClientOptions options;
  options.patience = kPatience;
  const FleetRequest request = {server.endpoint(), "/"};
  Exchange exchange(request, options, {full, Loopback(0, port)}, std::chrono::steady_clock::now());
  while (!exchange.Go(std::chrono::steady_clock::now())) {
    pollfd polled = {exchange.fd(), exchange.poll_events(), 0};
    poll(&polled, 1, 50);
  }
  EXPECT_EQ(exchange.TakeAnswer(1 << 20).body, "text");
  for (const int each : sockets) close(each);
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

constexpr char kBusy[] = "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\n\r\n";

TEST(HttpClient, ComesBackWhenItIsTold) {
  Answers patient({kBusy, kBusy, Page("", "text"), kBusy});
  const FleetAnswer answer = patient.Get();
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.body, "text");
  EXPECT_EQ(patient.Asked().size(), 3u);
}

TEST(HttpClient, ComesBackToABusyServerThatDoesNotSayWhen) {
  Answers busy({"HTTP/1.1 503 No\r\n\r\n", Page("", "text")});
  FleetClientOptions options;
  options.retry_until = std::chrono::steady_clock::now() + kPatience;
  EXPECT_EQ(busy.Get(options).body, "text");
  options.retry_until = std::chrono::steady_clock::now();
  Answers once({kBusy, kBusy});
  EXPECT_EQ(once.Get(options).status, 503);
  EXPECT_EQ(once.Asked().size(), 1u);
}

TEST(HttpClient, SendsAServerOneRequestAtATimeAndNoneAfterAFailure) {
  Answers good({Page("", "0"), Page("", "1"), Page("", "2")});
  Answers bad({"no HTTP", Page("", "1"), Page("", "2")});
  std::vector<FleetRequest> requests;
  for (const char* target : {"/0", "/1", "/2"}) {
    requests.push_back({good.endpoint(), target});
    requests.push_back({bad.endpoint(), target});
  }
  std::vector<FleetAnswer> answers(requests.size());
  FleetClientOptions options;
  options.patience = kPatience;
  AskAll(requests, options,
         [&](std::size_t index, FleetAnswer answer) { answers[index] = std::move(answer); });
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(answers[2 * i].body, std::to_string(i));
    EXPECT_EQ(answers[2 * i + 1].error, "its answer is not HTTP");
  }
  EXPECT_EQ(good.Asked().size(), 3u);
  EXPECT_EQ(bad.Asked().size(), 1u);
}

// What many servers send, and never end, takes no more memory than one may.
TEST(HttpClient, DropsTheLongestAnswersThatAreNotComplete) {
  const std::string part =
      absl::StrCat("HTTP/1.1 200 OK\r\nContent-Length: 9000000\r\n\r\n", std::string(400000, 'x'));
  constexpr std::size_t kServers = 8;
  std::vector<std::unique_ptr<Answers>> servers;
  std::vector<FleetRequest> requests;
  for (std::size_t i = 0; i < kServers; ++i) {
    servers.push_back(std::make_unique<Answers>(std::vector<std::string>{part}, /*holds=*/true));
    requests.push_back({servers.back()->endpoint(), "/x"});
  }
  std::atomic<bool> stop{false};
  FleetClientOptions options;
  options.patience = kPatience;
  options.most_bytes_together = 4 << 20;
  options.stop = &stop;
  std::size_t dropped = 0;
  AskAll(requests, options, [&](std::size_t /*index*/, const FleetAnswer& answer) {
    if (answer.error != "its answer exceeds the memory left for all answers") return;
    // Four of them fit into 2 MiB, which is what is not kept for unpacking.
    if (++dropped == kServers - 5) stop = true;
  });
  EXPECT_GE(dropped, kServers - 5);
}

TEST(HttpClient, UnpacksNoMoreThanAllAnswersMayTake) {
  const std::string page = Page("Content-Encoding: gzip\r\n", *Gzip(std::string(3 << 20, 'x')));
  Answers server({page, page});
  FleetClientOptions options;
  EXPECT_EQ(server.Get(options).body.size(), 3u << 20);
  options.most_bytes_together = 4 << 20;
  EXPECT_THAT(server.Get(options).error, HasSubstr("or has more than 2 MiB"));
}

TEST(HttpClient, UnpacksWithinItsShareOfTheTime) {
  Answers server({Page("Content-Encoding: gzip\r\n", *Gzip(std::string(100 << 20, 'x')))});
  WorkBudget budget(std::chrono::nanoseconds(0));
  FleetClientOptions options;
  options.most_unpacked_bytes = 200 << 20;
  options.most_bytes_together = 400 << 20;
  options.budget = &budget;
  EXPECT_EQ(server.Get(options).error, "its answer takes too long to unpack");
}

TEST(HttpClient, SaysWhyAServerRefuses) {
  Answers mimir({"HTTP/1.1 401 Unauthorized\r\n\r\nno org id\n"});
  EXPECT_EQ(ProblemOf(mimir.Get(), "/x"), "it asks for a password or a token (401): no org id");
  Answers hostile({absl::StrCat("HTTP/1.1 500 No\r\n\r\n\x1b[2J", std::string(1 << 20, 'x'))});
  const std::string problem = ProblemOf(hostile.Get(), "/x");
  EXPECT_THAT(problem, HasSubstr("it answers with status 500: ?[2Jxxx"));
  EXPECT_LT(problem.size(), 300u);
}

TEST(HttpClient, SendsOneMoreHeader) {
  Answers server({Page("", "text")});
  FleetClientOptions options;
  options.header = "X-Scope-OrgID: team-a";
  EXPECT_EQ(server.Get(options).body, "text");
  EXPECT_THAT(server.Asked().at(0), HasSubstr("\r\nX-Scope-OrgID: team-a\r\n"));
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
