#include "exporter/endpoint/server.h"

#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <vector>

#include "exporter/base/time.h"
#include "exporter/http/limits.h"
#include "exporter/http/page_cache.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/exporter/example_snapshots.h"
#include "tests/exporter/gunzip.h"
#include "tests/exporter/http_client.h"
#include "tests/exporter/test_server.h"
#include "tests/prelude/threads.h"

namespace nccl_pulse {
namespace {

using std::chrono::duration;
using std::chrono::milliseconds;
using std::chrono::steady_clock;
using testing::HasSubstr;
using testing::Not;

constexpr int64_t kHalfASecondNs = 500000000;

TEST(Server, Pages) {
  ServerOptions options;
  options.source = Always(Example);
  options.static_labels = {{"cluster", "a"}};
  const auto server = StartServer(options);
  EXPECT_EQ(server->address(), "127.0.0.1:" + std::to_string(server->port()));

  const Response metrics = Get(server->port(), "/metrics");
  EXPECT_EQ(metrics.status, 200);
  EXPECT_THAT(metrics.head,
              HasSubstr("Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n"));
  EXPECT_THAT(metrics.body, HasSubstr("rank=\"3\",cluster=\"a\"} 111\n"));
  EXPECT_THAT(metrics.body, HasSubstr("\nprocess_start_time_seconds{"));
  EXPECT_THAT(metrics.body, HasSubstr("\nprocess_resident_memory_bytes{"));
  EXPECT_EQ(Get(server->port(), "/metrics?name[]=x").status, 200);

  const Response communicators = Get(server->port(), "/api/v1/communicators");
  EXPECT_EQ(communicators.status, 200);
  EXPECT_THAT(communicators.head, HasSubstr("Content-Type: application/json\r\n"));
  EXPECT_THAT(communicators.body, HasSubstr("\"comm\":\"00ab12cd34ef5678\""));

  const Response health = Get(server->port(), "/healthz");
  EXPECT_EQ(health.status, 200);
  EXPECT_EQ(health.body, "ok\n");

  // To the microsecond, and made for each who asks.
  const auto time_of = [&server] {
    const Response time = Get(server->port(), "/api/v1/time");
    EXPECT_EQ(time.status, 200);
    EXPECT_THAT(time.head, HasSubstr("Content-Type: application/json\r\n"));
    double seconds = 0;
    EXPECT_EQ(std::sscanf(time.body.c_str(), "{\"time\":%lf}", &seconds), 1) << time.body;
    return seconds;
  };
  const auto now = [] { return static_cast<double>(RealtimeNs() / 1000) / 1e6; };
  const double before = now(), first = time_of(), between = now(), second = time_of();
  EXPECT_LE(before, first);
  EXPECT_LE(first, between);
  EXPECT_LE(between, second);
  EXPECT_LE(second, now());

  const Response start = Get(server->port(), "/");
  EXPECT_EQ(start.status, 200);
  EXPECT_THAT(start.head, HasSubstr("Content-Type: text/html; charset=utf-8\r\n"));
  EXPECT_THAT(start.body, HasSubstr("href=\"metrics\""));
  EXPECT_THAT(start.body, HasSubstr("href=\"healthz\""));
  EXPECT_THAT(start.head,
              HasSubstr("Content-Security-Policy: default-src 'none'; script-src 'sha256-"));

  const Response missing = Get(server->port(), "/etc/passwd");
  EXPECT_EQ(missing.status, 404);
  for (const char* method : {"POST", "PUT", "DELETE", "OPTIONS", "TRACE", "CONNECT"}) {
    const Response refused = Get(server->port(), "/metrics", method);
    EXPECT_EQ(refused.status, 405) << method;
    EXPECT_THAT(refused.head, HasSubstr("Allow: GET, HEAD\r\n"));
  }
}

// The diagnosis of each page, and of `pulse diagnose`, compares the order of calls in a hang.
TEST(Server, PagesAskForTheOrderOfCallsThatStand) {
  int64_t asked_ns = 0;
  ServerOptions options;
  options.source = [&asked_ns](const ReadWish& wish) {
    asked_ns = wish.order_of_stalled_since_ns;
    return Example();
  };
  const auto server = StartServer(options);
  for (const char* path : {"/metrics", "/api/v1/communicators", "/api/v1/snapshots"}) {
    asked_ns = 0;
    const int64_t before = RealtimeNs();
    EXPECT_EQ(Get(server->port(), path).status, 200);
    EXPECT_GE(asked_ns, before - kHalfASecondNs) << path;
    EXPECT_LE(asked_ns, RealtimeNs() - kHalfASecondNs) << path;
  }
}

TEST(Server, HeadHasTheHeadOfGetAndNoBody) {
  const auto server = StartServer(Example);
  for (const char* path : {"/metrics", "/healthz", "/", "/missing"}) {
    Client client(server->port());
    const std::string request = std::string(path) + " HTTP/1.1\r\n\r\n";
    client.Send("HEAD " + request);
    const Response head = ParseResponse(client.ReadResponse(/*head_only=*/true));
    // On the same connection: a body after the HEAD would show up here.
    client.Send("GET " + request);
    const Response get = ParseResponse(client.ReadResponse());
    EXPECT_EQ(head.status, get.status);
    EXPECT_EQ(head.head, get.head);
    EXPECT_EQ(head.body, "");
    EXPECT_NE(get.body, "");
  }
}

constexpr char kProtobuf[] =
    "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited";
constexpr char kOpenMetrics[] = "application/openmetrics-text; version=1.0.0; charset=utf-8";

Response GetAs(uint16_t port, const std::string& headers, const char* method = "GET") {
  Client client(port);
  client.Send(std::string(method) + " /metrics HTTP/1.1\r\n" + headers + "\r\n");
  return ParseResponse(client.ReadResponse(method[0] == 'H'));
}

TEST(Server, AnswersInTheFormatThatIsAskedFor) {
  const auto server = StartServer(Example);
  const Response text = GetAs(server->port(), "Accept: */*\r\n");
  EXPECT_THAT(text.head,
              HasSubstr("\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"));
  EXPECT_THAT(text.head, HasSubstr("\r\nVary: Accept, Accept-Encoding\r\n"));
  EXPECT_THAT(text.head, Not(HasSubstr("Content-Encoding")));
  EXPECT_THAT(text.body, HasSubstr("# TYPE nccl_launches_total counter\n"));

  const Response open_metrics =
      GetAs(server->port(), "Accept: application/openmetrics-text;version=1.0.0,*/*;q=0.1\r\n");
  EXPECT_THAT(open_metrics.head,
              HasSubstr("\r\nContent-Type: " + std::string(kOpenMetrics) + "\r\n"));
  EXPECT_THAT(open_metrics.body, HasSubstr("# TYPE nccl_launches counter\n"));
  EXPECT_EQ(open_metrics.body.substr(open_metrics.body.size() - 6), "# EOF\n");

  // In two lines, which are one list.
  const Response protobuf = GetAs(
      server->port(), "accept: text/plain;q=0.5\r\nACCEPT: " + std::string(kProtobuf) + "\r\n");
  EXPECT_THAT(protobuf.head, HasSubstr("\r\nContent-Type: " + std::string(kProtobuf) + "\r\n"));
  EXPECT_THAT(protobuf.body, HasSubstr("nccl_operation_duration_seconds"));
  EXPECT_NE(protobuf.body[0], '#');
  EXPECT_EQ(GetAs(server->port(), "Accept: image/png\r\n").body.substr(0, 2), "# ");
}

TEST(Server, CompressesWhenThatIsAccepted) {
  const auto server = StartServer(Example);
  for (const std::string type : {"text/plain", "application/openmetrics-text", kProtobuf}) {
    const std::string accept = "Accept: " + type + "\r\n";
    const Response plain = GetAs(server->port(), accept + "Accept-Encoding: gzip;q=0\r\n");
    EXPECT_THAT(plain.head, Not(HasSubstr("Content-Encoding")));
    const Response packed = GetAs(server->port(), accept + "Accept-Encoding: deflate, gzip\r\n");
    EXPECT_EQ(packed.status, 200);
    EXPECT_THAT(packed.head, HasSubstr("\r\nContent-Encoding: gzip\r\n"));
    EXPECT_THAT(packed.head, HasSubstr("\r\nVary: Accept, Accept-Encoding\r\n"));
    EXPECT_LT(packed.body.size(), plain.body.size() / 2);
    const std::string unpacked = Gunzip(packed.body);
    EXPECT_GT(unpacked.size(), plain.body.size() * 9 / 10);
    EXPECT_THAT(unpacked, HasSubstr("nccl_operation_duration_seconds"));
    const Response head = GetAs(server->port(), accept + "Accept-Encoding: gzip\r\n", "HEAD");
    EXPECT_THAT(head.head, HasSubstr("\r\nContent-Encoding: gzip\r\n"));
    EXPECT_EQ(head.body, "");
  }
  // Other pages are short.
  Client client(server->port());
  client.Send("GET /healthz HTTP/1.1\r\nAccept-Encoding: gzip\r\nConnection: close\r\n\r\n");
  EXPECT_EQ(ParseResponse(client.ReadAll(10)).body, "ok\n");
}

TEST(Server, EachFormatIsMadeAtMostOncePerLifetimeWhateverTheEncoding) {
  std::atomic<int> made{0};
  const auto server = StartServer([&made] {
    ++made;
    return Example();
  });
  const auto start = steady_clock::now();
  constexpr int kRounds = 20;
  for (int i = 0; i < kRounds; ++i) {
    for (const std::string type : {"text/plain", "application/openmetrics-text", kProtobuf}) {
      for (const char* encoding : {"identity", "gzip"}) {
        const Response response =
            GetAs(server->port(), "Accept: " + type + "\r\nAccept-Encoding: " + encoding + "\r\n");
        EXPECT_EQ(response.status, 200);
      }
    }
  }
  const auto lifetimes = 1 + static_cast<int>((steady_clock::now() - start) / kPageLifetime);
  EXPECT_LE(made, kPageFormats * (lifetimes + 1));
}

TEST(Server, TheSettingsOfTheExpositionApply) {
  ServerOptions options;
  options.source = Always(Example);
  std::string unknown;
  ASSERT_TRUE(ParseDroppedFamilies("nccl_launches_total", &options.exposition, &unknown));
  ASSERT_TRUE(ParseHistograms("native", &options.exposition));
  const auto server = StartServer(options);
  const std::string page = Get(server->port(), "/metrics").body;
  EXPECT_THAT(page, Not(HasSubstr("nccl_launches_total")));
  EXPECT_THAT(page, Not(HasSubstr("le=\"1\"")));
  EXPECT_THAT(page, HasSubstr("nccl_operation_duration_seconds_count"));
}

// A failing page, too, is one of several that a cache could keep.
TEST(Server, AFailingPageSaysWhatItDependsOnAndIsNotCompressed) {
  const auto server = StartServer([]() -> SnapshotSet { throw std::runtime_error("no"); });
  const Response response = GetAs(server->port(), "Accept-Encoding: gzip\r\n");
  EXPECT_EQ(response.status, 500);
  EXPECT_THAT(response.head, HasSubstr("\r\nVary: Accept, Accept-Encoding\r\n"));
  EXPECT_THAT(response.head, Not(HasSubstr("Content-Encoding")));
}

TEST(Server, ConnectionIsKeptAndRequestsMayBeSentAhead) {
  const auto server = StartServer(Example);
  Client client(server->port());
  std::string requests;
  for (int i = 0; i < 100; ++i) requests += "GET /healthz HTTP/1.1\r\n\r\n";
  requests += "GET /metrics HTTP/1.1\r\n\r\nGET / HTTP/1.0\r\n\r\n";
  client.Send(requests);
  bool closed = false;
  const std::string text = client.ReadAll(30, &closed);
  EXPECT_TRUE(closed);  // HTTP/1.0
  int responses = 0;
  for (std::size_t at = 0; (at = text.find("HTTP/1.1 200 OK\r\n", at)) != text.npos; ++at)
    ++responses;
  EXPECT_EQ(responses, 102);
  EXPECT_THAT(text, HasSubstr("</html>"));
}

TEST(Server, NoProcessAndNoCommunicator) {
  const auto server = StartServer([] { return SnapshotSet(); });
  const Response response = Get(server->port(), "/metrics");
  EXPECT_EQ(response.status, 200);
  EXPECT_THAT(response.body, HasSubstr("nccl_pulse_processes 0\n"));
}

TEST(Server, PageIsKeptForAWhileAndThenMadeAnew) {
  std::atomic<int> calls{0};
  const auto server = StartServer([&calls] {
    ++calls;
    return Example();
  });
  const auto start = steady_clock::now();
  int requests = 0;
  while (SecondsSince(start) < 1) {
    EXPECT_EQ(Get(server->port(), "/metrics").status, 200);
    ++requests;
  }
  const double lifetime = duration<double>(kPageLifetime).count();
  EXPECT_LE(calls, 1 + SecondsSince(start) / lifetime);
  EXPECT_LE(calls, requests);
  std::this_thread::sleep_for(kPageLifetime + milliseconds(50));
  const int before = calls;
  const Response last = Get(server->port(), "/metrics");
  EXPECT_EQ(calls, before + 1);
  EXPECT_THAT(last.body, HasSubstr("nccl_pulse_scrape_duration_seconds_count " +
                                   std::to_string(before) + "\n"));
}

TEST(Server, ExceptionsOfTheSourceAreAnswersAndLoggedOnce) {
  std::atomic<int> calls{0};
  std::mutex mutex;
  std::vector<std::string> messages;
  ServerOptions options;
  options.source = [&calls](const ReadWish&) -> SnapshotSet {
    const int call = ++calls;
    if (call == 1) throw std::runtime_error("segment is gone");
    if (call == 2) throw 42;
    return Example();
  };
  options.log = [&](LogLevel level, const std::string& message) {
    EXPECT_EQ(level, LogLevel::kWarning);
    const std::lock_guard<std::mutex> lock(mutex);
    messages.push_back(message);
    throw std::runtime_error("the log, too");
  };
  const auto server = StartServer(options);
  const Response first = Get(server->port(), "/metrics");
  EXPECT_EQ(first.status, 500);
  EXPECT_THAT(first.body, HasSubstr("segment is gone"));
  EXPECT_EQ(Get(server->port(), "/healthz").status, 200);
  std::this_thread::sleep_for(kPageLifetime + milliseconds(50));
  const Response second = Get(server->port(), "/metrics");
  EXPECT_EQ(second.status, 500);
  EXPECT_THAT(second.body, HasSubstr("unknown exception"));
  std::this_thread::sleep_for(kPageLifetime + milliseconds(50));
  EXPECT_EQ(Get(server->port(), "/metrics").status, 200);
  const std::lock_guard<std::mutex> lock(mutex);
  EXPECT_THAT(messages, testing::ElementsAre(HasSubstr("segment is gone")));
}

TEST(Server, NoSourceIsAnAnswerToo) {
  EXPECT_EQ(Get(StartServer(ServerOptions())->port(), "/metrics").status, 500);
}

TEST(Server, ScrapesAtTheSameTime) {
  const auto server = StartServer(Large);
  std::atomic<int> good{0};
  // A scrape that lasts as long as the server's limits of time is made again: the machine is slow.
  const auto is_good = [&server] {
    while (true) {
      const auto start = steady_clock::now();
      const Response response = Get(server->port(), "/metrics");
      const bool is_whole = response.status == 200 && response.body.size() > 1'000'000 &&
                            response.body.back() == '\n';
      if (is_whole || steady_clock::now() - start < kRequestTimeout) return is_whole;
    }
  };
  Threads(8, [&](int) {
    for (int j = 0; j < 4; ++j) good += is_good() ? 1 : 0;
  }).Join();
  EXPECT_EQ(good, 32);
}

TEST(Server, PortInUse) {
  const auto first = StartServer(Example);
  ServerOptions options;
  options.source = Always(Example);
  options.listen_address = first->address();
  const auto second = StartServer(options);
  EXPECT_GT(second->port(), first->port());
  EXPECT_EQ(Get(second->port(), "/healthz").status, 200);
  EXPECT_EQ(Get(first->port(), "/healthz").status, 200);
}

TEST(Server, BadAddress) {
  std::string error;
  ServerOptions options;
  options.listen_address = "somewhere:9410";
  EXPECT_EQ(Server::Start(options, &error), nullptr);
  EXPECT_THAT(error, HasSubstr("'somewhere:9410' is not an address to listen on"));
  options.listen_address = "192.0.2.1:9410";
  EXPECT_EQ(Server::Start(options, &error), nullptr);
  // Or on the next one, if a demo that still runs has this port.
  EXPECT_THAT(error, HasSubstr("cannot listen on 192.0.2.1:94"));
}

}  // namespace
}  // namespace nccl_pulse
