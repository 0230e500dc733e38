// The loop with handlers of its own: nothing here knows NCCL.
#include "exporter/http/server_loop.h"

#include <gtest/gtest.h>

#include <atomic>
#include <optional>
#include <string>
#include <thread>

#include "exporter/node/listener.h"
#include "tests/exporter/http_client.h"

namespace nccl_pulse {
namespace {

class ServerLoopTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ListenAddress address;
    std::string error;
    ASSERT_TRUE(ParseListenAddress("127.0.0.1:0", &address, &error));
    Listener listener;
    ASSERT_EQ(OpenAt(address, entrance_.descriptor(), &listener), 0);
    port_ = listener.port;
    ASSERT_TRUE(wake_.Open());
    ASSERT_TRUE(ready_.Open());
    ServerLoop::Options options;
    options.cpu_share = 4;
    options.ready = &ready_;
    options.handlers = {
        {"/one", "one path",
         [](const HttpRequest& request) { return TextResponse(200, "one?" + request.query); }},
        {"/folder/", "all below it",
         [](const HttpRequest& request) { return TextResponse(200, request.path); }},
        {"/post", "a body",
         [](const HttpRequest& request) { return TextResponse(200, request.body); },
         /*most_body_bytes=*/20000},
        {"/later", "", [this](const HttpRequest&) -> std::optional<HttpResponse> {
           ++asked_;
           if (!has_answer_) return std::nullopt;
           return TextResponse(200, "at last");
         }}};
    loop_.emplace(std::move(options), &entrance_);
    thread_ = std::thread([this] {
      while (!stopping_) loop_->Round(wake_, [] {});
      loop_->Close();
    });
  }
  void TearDown() override {
    stopping_ = true;
    wake_.Signal();
    thread_.join();
  }
  Response Post(const std::string& body) {
    return Ask("POST /post HTTP/1.1\r\nContent-Length: " + std::to_string(body.size()) +
               "\r\n\r\n" + body);
  }
  Response Ask(const std::string& request) {
    Client client(port_);
    client.Send(request);
    return ParseResponse(client.ReadAll(30));
  }

  uint16_t port_ = 0;
  ListeningSocket entrance_;
  Wake wake_, ready_;
  std::atomic<bool> stopping_{false}, has_answer_{false};
  std::atomic<int> asked_{0};
  std::optional<ServerLoop> loop_;
  std::thread thread_;
};

TEST_F(ServerLoopTest, TheFirstHandlerWithThePathAnswers) {
  EXPECT_EQ(Get(port_, "/one?x=1").body, "one?x=1");
  EXPECT_EQ(Get(port_, "/folder/a/b").body, "/folder/a/b");
  const Response missing = Get(port_, "/one/more");
  EXPECT_EQ(missing.status, 404);
  EXPECT_EQ(missing.body,
            "404 Not Found\n\n/one  one path\n/folder/  all below it\nPOST /post  a body\n");
}

TEST_F(ServerLoopTest, ABodyIsTakenWhereAHandlerTakesOne) {
  const std::string body(15000, 'x');  // more than a head may have
  EXPECT_EQ(Post(body).body, body);
  EXPECT_EQ(Post(std::string(20001, 'x')).status, 413);
  EXPECT_EQ(Ask("POST /post HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n").status, 411);
  const Response get = Get(port_, "/post");
  EXPECT_EQ(get.status, 405);
  EXPECT_NE(get.head.find("\r\nAllow: POST\r\n"), std::string::npos);
  EXPECT_EQ(Ask("POST /one HTTP/1.1\r\nContent-Length: 1\r\n\r\nx").status, 405);
}

// Others are answered meanwhile.
TEST_F(ServerLoopTest, AnAnswerThatIsNotThereYetIsWaitedFor) {
  std::string body;
  std::thread client([this, &body] { body = Get(port_, "/later").body; });
  while (asked_ == 0) std::this_thread::yield();
  EXPECT_EQ(Get(port_, "/one").status, 200);
  ready_.Signal();
  while (asked_ == 1) std::this_thread::yield();  // asked again, in vain
  has_answer_ = true;
  ready_.Signal();
  client.join();
  EXPECT_EQ(body, "at last");
}

}  // namespace
}  // namespace nccl_pulse
