// The server behind TLS and passwords: large pages, slow readers, and clients that mean harm, after
// each of which the next scrape is answered within a second.
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <chrono>
#include <deque>
#include <fstream>
#include <string>
#include <thread>
#include <utility>

#include "exporter/web/guard.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/exporter/test_server.h"
#include "tests/exporter/web/certificates.h"

namespace nccl_pulse {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

// "abc"; cost 4
constexpr char kHash[] = "$2b$04$abcdefghijklmnopqrstuuCi15uRb1eH7NAlJ/TgeJertyknQpYn2";
constexpr char kRight[] = "Authorization: Basic YW5uOmFiYw==\r\n";  // ann:abc

// A client that blocks, and does not look at the server's certificate.
class TlsClient {
 public:
  explicit TlsClient(uint16_t port)
      : client_(port), context_(SSL_CTX_new(TLS_method())), ssl_(SSL_new(context_.get())) {
    SSL_set_fd(ssl_.get(), client_.fd());
    SSL_set_connect_state(ssl_.get());
  }

  int fd() const { return client_.fd(); }
  bool Handshake() { return SSL_do_handshake(ssl_.get()) == 1; }
  bool Send(const std::string& text) {
    return SSL_write(ssl_.get(), text.data(), static_cast<int>(text.size())) ==
           static_cast<int>(text.size());
  }
  // What comes next; "" at the end.
  std::string Read(std::size_t size = 65536) {
    std::string text(size, '\0');
    const int read = SSL_read(ssl_.get(), text.data(), static_cast<int>(size));
    text.resize(read > 0 ? static_cast<std::size_t>(read) : 0);
    return text;
  }
  std::string ReadAll() {
    std::string all;
    for (std::string text = Read(); !text.empty(); text = Read()) all += text;
    // The server said that it was the end; nobody cut it off.
    EXPECT_NE(SSL_get_shutdown(ssl_.get()) & SSL_RECEIVED_SHUTDOWN, 0);
    return all;
  }

 private:
  Client client_;
  bssl::UniquePtr<SSL_CTX> context_;
  bssl::UniquePtr<SSL> ssl_;
};

std::string Request(const std::string& headers = "Connection: close\r\n",
                    const std::string& path = "/metrics") {
  return "GET " + path + " HTTP/1.1\r\nHost: x\r\n" + headers + "\r\n";
}

Response Scrape(uint16_t port, const std::string& headers = "") {
  TlsClient client(port);
  EXPECT_TRUE(client.Send(Request("Connection: close\r\n" + headers)));
  return ParseResponse(client.ReadAll());
}

class GuardedServer : public testing::Test {
 protected:
  static void SetUpTestSuite() { WriteCertificates(testing::TempDir()); }

  void Start(const std::string& config, std::function<SnapshotSet()> source = Example) {
    const std::string path = testing::TempDir() + "/web.yml";
    std::ofstream(path) << config;
    std::string error;
    const auto log = [](LogLevel, const std::string&) {};
    ServerOptions options;
    options.guard = WebGuard::Open(path, log, &error);
    ASSERT_NE(options.guard, nullptr) << error;
    options.source = Always(std::move(source));
    server_ = StartServer(std::move(options));
    port_ = server_->port();
  }

  void StartTls(std::function<SnapshotSet()> source = Example, const char* name = "server") {
    Start(std::string("tls_server_config: {cert_file: ") + name + ".pem, key_file: " + name +
              ".key}\n",
          std::move(source));
  }

  void StartWithPassword() {
    Start(std::string("tls_server_config: {cert_file: server.pem, key_file: server.key}\n"
                      "basic_auth_users: {ann: ") +
          kHash + "}\n");
  }

  void ExpectScrapeWithinASecond(const std::string& headers = "") {
    const AnswerTime time;
    EXPECT_EQ(Scrape(port_, headers).status, 200);
    EXPECT_LT(time.Seconds(), kAnswerSeconds);
  }

  std::unique_ptr<Server> server_;
  uint16_t port_ = 0;
};

TEST_F(GuardedServer, Answers) {
  StartTls();
  const Response response = Scrape(port_);
  EXPECT_EQ(response.status, 200);
  EXPECT_THAT(response.body, HasSubstr("nccl_operations_total"));
}

TEST_F(GuardedServer, KeepsConnections) {
  StartTls();
  TlsClient client(port_);
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(client.Send(Request("", "/healthz")));
    std::string answer;
    while (answer.find("ok\n") == answer.npos) answer += client.Read();
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 OK"));
  }
}

// More of them in one record than are read at a time.
TEST_F(GuardedServer, AnswersAllRequestsOfOneRecord) {
  StartTls();
  TlsClient client(port_);
  std::string requests;
  for (int i = 0; i < 150; ++i) requests += Request("", "/healthz");
  ASSERT_GT(requests.size(), 4096U);
  ASSERT_LT(requests.size(), 8192U);
  ASSERT_TRUE(client.Send(requests + Request("Connection: close\r\n", "/healthz")));
  const std::string answers = client.ReadAll();
  std::size_t count = 0;
  for (std::size_t at = 0; (at = answers.find("\r\n\r\nok\n", at)) != answers.npos; ++at) ++count;
  EXPECT_EQ(count, 151U);
}

TEST_F(GuardedServer, SendsALargePageWhole) {
  StartTls(Large);
  const Response response = Scrape(port_);
  EXPECT_EQ(response.status, 200);
  EXPECT_GT(response.body.size(), 10'000'000U);
  EXPECT_THAT(response.head, HasSubstr(std::to_string(response.body.size())));
}

TEST_F(GuardedServer, SlowReadersDoNotHoldUpOthers) {
  StartTls(Large);
  std::deque<TlsClient> slow;
  for (int i = 0; i < 8; ++i) {
    slow.emplace_back(port_);
    ASSERT_TRUE(slow.back().Send(Request()));
    EXPECT_FALSE(slow.back().Read(100).empty());
  }
  TlsClient client(port_);
  const AnswerTime time;
  ASSERT_TRUE(client.Send(Request("Connection: close\r\n", "/healthz")));
  EXPECT_EQ(ParseResponse(client.ReadAll()).status, 200);
  EXPECT_LT(time.Seconds(), kAnswerSeconds);
  // And they get all of it.
  EXPECT_GT(slow.front().ReadAll().size(), 10'000'000U);
}

TEST_F(GuardedServer, SpeaksTlsAlone) {
  StartTls();
  const Response response = Get(port_, "/metrics");
  EXPECT_EQ(response.status, 400);
  EXPECT_EQ(response.body, "This endpoint speaks TLS: use https.\n");
  ExpectScrapeWithinASecond();
}

TEST_F(GuardedServer, Garbage) {
  StartTls();
  for (int i = 0; i < 100; ++i) {
    Client client(port_);
    std::string bytes(500, '\0');
    for (char& c : bytes) c = static_cast<char>(rand());
    // A record of a handshake, of the right length, with nothing sensible in it.
    if (i % 2 == 0) bytes.replace(0, 5, {0x16, 0x03, 0x01, 0x01, static_cast<char>(0xef)});
    client.Send(bytes);
    bool closed = false;
    client.ReadAll(30, &closed);
    EXPECT_TRUE(closed);
  }
  ExpectScrapeWithinASecond();
}

TEST_F(GuardedServer, HalfAHandshakeEndsInTime) {
  StartTls();
  Client silent(port_);
  Client half(port_);
  half.Send({"\x16\x03\x01\x02\x00\x01", 6});
  ExpectScrapeWithinASecond();
  for (Client* client : {&silent, &half}) {
    bool closed = false;
    client->ReadAll(60, &closed);
    EXPECT_TRUE(closed);
  }
}

TEST_F(GuardedServer, ATricklingHandshakeEndsInTime) {
  StartTls();
  Client client(port_);
  std::string hello = {0x16, 0x03, 0x01, 0x20, 0x00};
  hello.append(8192, 'x');
  std::size_t sent = 0;
  while (sent < hello.size() && client.Send(hello.substr(sent, 1))) {
    ++sent;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  EXPECT_LT(sent, hello.size());
}

// Each has made the server sign something.
TEST_F(GuardedServer, FiveHundredHandshakesThatStop) {
  StartTls(Example, "rsa");
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
  std::deque<TlsClient> clients;
  for (int i = 0; i < 500; ++i) {
    clients.emplace_back(port_);
    // The greeting is sent, the answer is not read.
    timeval soon{0, 1};
    setsockopt(clients.back().fd(), SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof(soon));
    clients.back().Handshake();
    ERR_clear_error();
  }
  ExpectScrapeWithinASecond();
}

TEST_F(GuardedServer, FiveHundredSilentClients) {
  StartTls();
  std::deque<Client> clients;
  for (int i = 0; i < 500; ++i) clients.emplace_back(port_);
  ExpectScrapeWithinASecond();
}

TEST_F(GuardedServer, AsksForThePassword) {
  StartWithPassword();
  const Response without = Scrape(port_);
  EXPECT_EQ(without.status, 401);
  EXPECT_THAT(without.head, HasSubstr("WWW-Authenticate: Basic"));
  EXPECT_EQ(Scrape(port_, kRight).status, 200);
  EXPECT_EQ(Scrape(port_, "Authorization: Basic YW5uOmFiYg==\r\n").status, 401);  // ann:abb
  EXPECT_EQ(Scrape(port_, "Authorization: Basic Ym9iOmFiYw==\r\n").status, 401);  // bob:abc
  EXPECT_EQ(Scrape(port_, "Authorization: Basic YW5uOmFiYwBk\r\n").status, 401);  // ann:abc\0d
  EXPECT_EQ(Scrape(port_, "Authorization: Basic YW5u\r\n").status, 401);          // ann
  EXPECT_EQ(Scrape(port_, "Authorization: Basic !!!\r\n").status, 401);
  EXPECT_EQ(Scrape(port_, "Authorization: Bearer YW5uOmFiYw==\r\n").status, 401);
  EXPECT_EQ(Scrape(port_, "authorization: bAsIc YW5uOmFiYw==\r\n").status, 200);
}

// The verdict about the first is awaited while the second has already come.
TEST_F(GuardedServer, RequestsBehindOneThatWaits) {
  StartWithPassword();
  TlsClient client(port_);
  ASSERT_TRUE(client.Send(Request(kRight, "/healthz") +
                          Request(std::string(kRight) + "Connection: close\r\n", "/healthz")));
  const std::string answers = client.ReadAll();
  EXPECT_THAT(answers, StartsWith("HTTP/1.1 200"));
  EXPECT_NE(answers.rfind("HTTP/1.1 200"), 0U);
}

TEST_F(GuardedServer, GuessesDoNotHoldUpWhoIsKnown) {
  StartWithPassword();
  EXPECT_EQ(Scrape(port_, kRight).status, 200);
  std::deque<TlsClient> guesses;
  for (int i = 0; i < 100; ++i) {
    guesses.emplace_back(port_);
    const std::string two = {static_cast<char>('A' + i / 10), static_cast<char>('a' + i % 10)};
    guesses.back().Send(Request("Authorization: Basic YW5uOmFi" + two + "==\r\n"));
  }
  ExpectScrapeWithinASecond(kRight);
}

// It left before the verdict came; whoever comes next must not get its answer.
TEST_F(GuardedServer, AClientThatLeavesMeanwhile) {
  StartWithPassword();
  for (int i = 0; i < 50; ++i) {
    TlsClient client(port_);
    client.Send(Request("Authorization: Basic " + std::string(4 + 4 * (i % 20), 'A') + "\r\n"));
  }
  EXPECT_EQ(Scrape(port_).status, 401);
  EXPECT_EQ(Scrape(port_, kRight).status, 200);
}

TEST_F(GuardedServer, PasswordsWithoutTls) {
  Start(std::string("http_server_config: {headers: {X-Content-Type-Options: nosniff}}\n"
                    "basic_auth_users: {ann: ") +
        kHash + "}\n");
  const Response response = Get(port_, "/healthz");
  EXPECT_EQ(response.status, 401);
  EXPECT_THAT(response.head, HasSubstr("X-Content-Type-Options: nosniff\r\n"));
  Client client(port_);
  client.Send(Request(std::string(kRight) + "Connection: close\r\n"));
  EXPECT_EQ(ParseResponse(client.ReadAll(30)).status, 200);
}

}  // namespace
}  // namespace nccl_pulse
