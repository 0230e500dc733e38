#include "exporter/http/http.h"

#include "gtest/gtest.h"

namespace nccl_pulse {
namespace {

using Method = HttpRequest::Method;

HttpRequest Parse(std::string_view text) {
  HttpRequest request;
  EXPECT_EQ(ParseRequest(text, &request), ParseResult::kOk) << text;
  return request;
}

ParseResult ResultOf(std::string_view text) {
  HttpRequest request;
  return ParseRequest(text, &request);
}

TEST(ParseRequest, WhatPrometheusSends) {
  const std::string text =
      "GET /metrics HTTP/1.1\r\nHost: node:9410\r\nUser-Agent: Prometheus/2.42.0\r\n"
      "Accept: application/openmetrics-text;version=1.0.0,*/*;q=0.1\r\nAccept-Encoding: gzip\r\n"
      "X-Prometheus-Scrape-Timeout-Seconds: 10\r\n\r\n";
  const HttpRequest request = Parse(text + "GET /next");
  EXPECT_EQ(request.method, Method::kGet);
  EXPECT_EQ(request.path, "/metrics");
  EXPECT_TRUE(request.keep_alive);
  EXPECT_FALSE(request.has_body);
  EXPECT_EQ(request.head_bytes, text.size());
}

TEST(ParseRequest, EveryPrefixIsIncomplete) {
  const std::string text = "\r\nHEAD / HTTP/1.1\r\nHost: x\r\nA: b\r\n\r\n";
  for (std::size_t size = 0; size < text.size(); ++size) {
    EXPECT_EQ(ResultOf(text.substr(0, size)), ParseResult::kIncomplete) << size;
  }
  EXPECT_EQ(Parse(text).method, Method::kHead);
}

TEST(ParseRequest, Targets) {
  EXPECT_EQ(Parse("GET /metrics?a=b?c HTTP/1.1\r\n\r\n").path, "/metrics");
  EXPECT_EQ(Parse("GET http://node:9410/metrics?x HTTP/1.1\r\n\r\n").path, "/metrics");
  EXPECT_EQ(Parse("GET http://node:9410 HTTP/1.1\r\n\r\n").path, "/");
  EXPECT_EQ(Parse("OPTIONS * HTTP/1.1\r\n\r\n").method, Method::kOther);
  EXPECT_EQ(ResultOf("GET metrics HTTP/1.1\r\n\r\n"), ParseResult::kBad);
  EXPECT_EQ(ResultOf("GET / / HTTP/1.1\r\n\r\n"), ParseResult::kBad);
}

TEST(ParseRequest, ConnectionAndBody) {
  EXPECT_FALSE(Parse("GET / HTTP/1.0\r\n\r\n").keep_alive);
  EXPECT_FALSE(Parse("GET / HTTP/1.1\r\nconnection: foo, Close\r\n\r\n").keep_alive);
  EXPECT_TRUE(Parse("GET / HTTP/1.1\r\nConnection: closed\r\n\r\n").keep_alive);
  EXPECT_TRUE(Parse("POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello").has_body);
  EXPECT_TRUE(Parse("GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n").has_body);
  EXPECT_FALSE(Parse("GET / HTTP/1.1\r\nContent-Length: 0\r\n\r\n").has_body);
  EXPECT_EQ(Parse("GET / HTTP/1.1\nA: b\n\n").head_bytes, 21u);  // by hand, with LF alone
}

TEST(ParseRequest, WhatIsAccepted) {
  const HttpRequest request = Parse(
      "GET / HTTP/1.1\r\naccept:  text/plain \r\nAccept-Encoding:gzip\r\nACCEPT: */*;q=0.1\r\n"
      "Accept-Language: de\r\n\r\n");
  EXPECT_EQ(request.accept, "text/plain, */*;q=0.1");
  EXPECT_EQ(request.accept_encoding, "gzip");
  EXPECT_EQ(Parse("GET / HTTP/1.1\r\n\r\n").accept, "");
}

TEST(ParseRequest, WhatIsNoRequest) {
  using namespace std::string_literals;
  for (const std::string& text :
       {"\x16\x03\x01"s, "get / HTTP/1.1\r\n\r\n"s, "GET /\r\n\r\n"s, "GET / HTTP/2.0\r\n\r\n"s,
        "GET / HTTP/1.1\r\nno colon\r\n\r\n"s, "GET / HTTP/1.1\r\n: x\r\n\r\n"s,
        "GET / HTTP/1.1\r\nA : x\r\n\r\n"s, "GET / HTTP/1.1\r\nA: x\r\n folded: y\r\n\r\n"s,
        "GET /\0 HTTP/1.1\r\n\r\n"s, "GET / HTTP/1.1\r\nA: \0\r\n\r\n"s,
        "G\x01T"s + " / HTTP/1.1\r\n"s, "PRI * HTTP/2.0\r\n\r\n"s}) {
    EXPECT_EQ(ResultOf(text), ParseResult::kBad) << text;
  }
}

TEST(ResponseHead, Form) {
  EXPECT_EQ(ResponseHead(200, "text/plain", 3, true),
            "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 3\r\n"
            "Connection: keep-alive\r\n\r\n");
  EXPECT_EQ(ResponseHead(405, "text/plain", 0, false, "Allow: GET, HEAD\r\n"),
            "HTTP/1.1 405 Method Not Allowed\r\nContent-Type: text/plain\r\nContent-Length: 0\r\n"
            "Connection: close\r\nAllow: GET, HEAD\r\n\r\n");
  EXPECT_EQ(ResponseHead(200, "text/plain", 3, true, "Vary: Accept\r\n"),
            "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 3\r\n"
            "Connection: keep-alive\r\nVary: Accept\r\n\r\n");
}

}  // namespace
}  // namespace nccl_pulse
