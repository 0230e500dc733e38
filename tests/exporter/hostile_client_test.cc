// Clients that mean harm, or are broken: each time the next scrape must be answered within a
// second.
#include <sys/resource.h>
#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <deque>
#include <thread>
#include <vector>

#include "exporter/http/page_cache.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/exporter/test_server.h"

namespace nccl_pulse {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using testing::HasSubstr;
using testing::StartsWith;

// Until the server has closed the connection; returns how long that took.
double SecondsUntilClosed(Client* client) {
  const auto start = steady_clock::now();
  bool closed = false;
  client->ReadAll(60, &closed);
  EXPECT_TRUE(closed);
  return SecondsSince(start);
}

TEST(HostileClient, SendsNothing) {
  const auto server = StartServer(Example);
  Client silent(server->port());
  ExpectAnswerWithinASecond(server->port());
  EXPECT_GT(SecondsUntilClosed(&silent), 3);  // its time is not cut short while there is room
  ExpectAnswerWithinASecond(server->port());
}

TEST(HostileClient, SendsHalfARequest) {
  const auto server = StartServer(Example);
  Client half(server->port());
  half.Send("GET /metrics HTTP/1.1\r\nHost:");
  ExpectAnswerWithinASecond(server->port());
  SecondsUntilClosed(&half);
}

TEST(HostileClient, SendsAByteNowAndThen) {
  const auto server = StartServer(Example);
  Client trickling(server->port());
  // Would take half an hour for 8 KiB, and never be idle for long.
  const std::string request = "GET /metrics HTTP/1.1\r\nA: " + std::string(8000, 'x');
  std::size_t sent = 0;
  while (sent < request.size() && trickling.Send(request.substr(sent, 1))) {
    ++sent;
    std::this_thread::sleep_for(milliseconds(200));
  }
  EXPECT_LT(sent, request.size());
  ExpectAnswerWithinASecond(server->port());
}

TEST(HostileClient, SendsTenMegabytesOfHeader) {
  const auto server = StartServer(Example);
  Client client(server->port());
  std::thread sender([&client] {
    client.Send("GET /metrics HTTP/1.1\r\n");
    const std::string header = "X-Header: " + std::string(1000, 'x') + "\r\n";
    for (int i = 0; i < 10000 && client.Send(header); ++i) {
    }
  });
  ExpectAnswerWithinASecond(server->port());
  EXPECT_EQ(Get(server->port(), "/healthz").status, 200);
  sender.join();
  // The answer may be lost when the server resets a connection that does not stop sending.
  bool closed = false;
  client.ReadAll(30, &closed);
  EXPECT_TRUE(closed);
}

TEST(HostileClient, HeadThatIsALittleTooLong) {
  const auto server = StartServer(Example);
  for (const std::string& text :
       {"GET /" + std::string(kMaxRequestHeadBytes, 'x'),
        "GET / HTTP/1.1\r\nA: " + std::string(kMaxRequestHeadBytes, 'x') + "\r\n\r\n"}) {
    Client client(server->port());
    client.Send(text);
    EXPECT_THAT(client.ReadAll(30), StartsWith("HTTP/1.1 431 "));
  }
  Client fits(server->port());
  const std::string start = "GET /healthz HTTP/1.0\r\nA: ";
  fits.Send(start + std::string(kMaxRequestHeadBytes - start.size() - 4, 'x') + "\r\n\r\n");
  EXPECT_THAT(fits.ReadAll(30), StartsWith("HTTP/1.1 200 "));
}

TEST(HostileClient, SendsABody) {
  const auto server = StartServer(Example);
  Client post(server->port());
  post.Send("POST /metrics HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n");
  post.Send(std::string(500000, 'x'));
  EXPECT_THAT(post.ReadAll(30), StartsWith("HTTP/1.1 405 "));
  Client get(server->port());
  get.Send("GET /metrics HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n");
  const std::string text = get.ReadAll(30);
  EXPECT_THAT(text, StartsWith("HTTP/1.1 413 "));
  // The body is not taken for a request.
  EXPECT_EQ(text.find("HTTP/1.1", 1), text.npos);
  ExpectAnswerWithinASecond(server->port());
}

TEST(HostileClient, SendsABodyWithoutEnd) {
  const auto server = StartServer(Example);
  Client client(server->port());
  std::atomic<bool> refused{false};
  std::thread sender([&] {
    client.Send("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n");
    const std::string chunk(65536, 'x');
    const auto start = steady_clock::now();
    while (SecondsSince(start) < 60) {
      if (!client.Send(chunk)) {
        refused = true;
        return;
      }
    }
  });
  ExpectAnswerWithinASecond(server->port());
  sender.join();
  EXPECT_TRUE(refused);
}

TEST(HostileClient, SpeaksSomethingElse) {
  using namespace std::string_literals;
  const auto server = StartServer(Example);
  for (const std::string& text :
       {"\x16\x03\x01\x02\x00\x01\x00"s, "\0\0\0\0"s, "SSH-2.0-x\r\n\r\n"s,
        "GET / HTTP/1.1\r\n\x01\r\n\r\n"s, "hello\n"s}) {
    Client client(server->port());
    client.Send(text);
    EXPECT_THAT(client.ReadAll(30), StartsWith("HTTP/1.1 400 ")) << text;
  }
}

TEST(HostileClient, FiveHundredSilentConnectionsAtOnce) {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
  const auto server = StartServer(Example);
  std::vector<Client> clients;
  clients.reserve(500);
  for (int i = 0; i < 500; ++i) clients.emplace_back(server->port());
  ExpectAnswerWithinASecond(server->port());
  // Half requests do not hold it up either.
  for (Client& client : clients) client.Send("GET /metrics HTTP/1.1\r\n");
  ExpectAnswerWithinASecond(server->port());
  // At most that many are left; the number, because docs and the job's limit of descriptors count
  // on it.
  int open = 0;
  for (Client& client : clients) {
    char byte = 0;
    const ssize_t size = recv(client.fd(), &byte, 1, MSG_DONTWAIT);
    if (size < 0 && errno == EAGAIN) ++open;
  }
  EXPECT_LE(open, 32);
  EXPECT_GE(open, 31);  // one may have been answered
}

TEST(HostileClient, FiveHundredScrapesAtOnce) {
  const auto server = StartServer(Example);
  std::vector<Client> clients;
  clients.reserve(500);
  for (int i = 0; i < 500; ++i) clients.emplace_back(server->port());
  for (Client& client : clients) client.Send(kScrape);
  ExpectAnswerWithinASecond(server->port());
}

TEST(HostileClient, ConnectionsThatNeverCease) {
  const auto server = StartServer(Example);
  std::atomic<bool> done{false};
  std::thread flood([&] {
    std::deque<Client> clients;
    while (!done) {
      clients.emplace_back(server->port());
      if (clients.size() == 200) clients.pop_front();
      std::this_thread::sleep_for(milliseconds(1));
    }
  });
  for (int i = 0; i < 5; ++i) ExpectAnswerWithinASecond(server->port());
  done = true;
  flood.join();
}

// Each asks for a page of many megabytes and does not read it. `requests` are made in turn, until
// the page was made more than `most_pages` times.
void ExpectSlowReadersDoNotHoldItUp(const std::vector<std::string>& requests, int most_pages) {
  std::atomic<int> pages{0};
  const auto server = StartServer([&pages] {
    ++pages;
    return Large();
  });
  constexpr std::size_t kReaders = std::size_t{3} * kMaxConnections;
  std::deque<Client> readers;
  const auto first = steady_clock::now();
  std::size_t asked = 0;
  while (readers.size() < kReaders || (pages <= most_pages && SecondsSince(first) < 60)) {
    readers.emplace_back(server->port());
    readers.back().Send(requests[asked++ % requests.size()]);
    if (readers.size() > kReaders) readers.pop_front();
    std::this_thread::sleep_for(milliseconds(20));
  }
  EXPECT_GT(pages, most_pages);
  ExpectAnswerWithinASecond(server->port(), "/healthz");
  // In the end all are gone.
  for (Client& reader : readers) {
    bool closed = false;
    reader.ReadAll(60, &closed);
    EXPECT_TRUE(closed);
  }
}

// A new page waits until they have had the time to take the one before.
TEST(HostileClient, SlowReaders) { ExpectSlowReadersDoNotHoldItUp({kScrape}, 3); }

// They read many different pages, which must not all be kept.
TEST(HostileClient, SlowReadersOfManyPages) {
  const std::string open_metrics =
      "GET /metrics HTTP/1.1\r\nAccept: application/openmetrics-text\r\nConnection: close\r\n\r\n";
  ExpectSlowReadersDoNotHoldItUp({kScrape, open_metrics}, kMaxPages);
}

// It does read, but would take minutes.
TEST(HostileClient, ReadsAByteNowAndThen) {
  const auto server = StartServer(Large);
  Client client(server->port());
  client.Send(kScrape);
  const auto start = steady_clock::now();
  char bytes[1024];
  std::string head;
  std::size_t read = 0;
  // Once closed, what the kernel still holds ends in a reset or the end of the stream.
  for (ssize_t size; (size = recv(client.fd(), bytes, sizeof(bytes), 0)) > 0;) {
    if (read == 0) head.assign(bytes, static_cast<std::size_t>(size));
    read += static_cast<std::size_t>(size);
    if (SecondsSince(start) < 15) std::this_thread::sleep_for(milliseconds(50));
  }
  EXPECT_GT(read, 0u);
  const std::string length = "Content-Length: ";
  ASSERT_THAT(head, HasSubstr(length));
  EXPECT_LT(read, std::stoull(head.substr(head.find(length) + length.size())));  // it was cut off
  ExpectAnswerWithinASecond(server->port(), "/healthz");
}

}  // namespace
}  // namespace nccl_pulse
