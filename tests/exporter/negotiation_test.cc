#include "exporter/exposition/negotiation.h"

#include <string>

#include "gtest/gtest.h"

namespace nccl_pulse {
namespace {

constexpr PageFormat kText = PageFormat::kText;
constexpr PageFormat kOpenMetrics = PageFormat::kOpenMetrics;
constexpr PageFormat kProtobuf = PageFormat::kProtobuf;
constexpr char kDelimited[] =
    "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited";

struct Accept {
  std::string header;
  PageFormat format;
};

void ExpectFormats(const std::vector<Accept>& cases) {
  for (const Accept& each : cases) {
    EXPECT_EQ(static_cast<int>(NegotiateFormat(each.header)), static_cast<int>(each.format))
        << each.header.substr(0, 200);
  }
}

TEST(NegotiateFormat, WhatScrapersSend) {
  ExpectFormats({
      // Prometheus 2.42, without and with native histograms.
      {"application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;"
       "q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
       kOpenMetrics},
      {kDelimited + std::string(",application/openmetrics-text;version=1.0.0;q=0.8,"
                                "application/openmetrics-text;version=0.0.1;q=0.75,"
                                "text/plain;version=0.0.4;q=0.5,*/*;q=0.1"),
       kProtobuf},
      // Prometheus 3.
      {"application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
       "application/openmetrics-text;version=0.0.1;q=0.5,"
       "text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,"
       "*/*;q=0.2",
       kOpenMetrics},
      {"text/html,application/xhtml+xml,application/xml;q=0.9,image/webp,*/*;q=0.8", kText},
      {"*/*", kText},
      {"", kText},
  });
}

TEST(NegotiateFormat, TypesAndWildcards) {
  const std::string protobuf = kDelimited;
  ExpectFormats({
      {"text/plain", kText},
      {"TEXT/Plain; Version=0.0.4; charset=utf-8", kText},
      {"text/*", kText},
      {"application/openmetrics-text", kOpenMetrics},
      {"Application/OpenMetrics-Text; version=\"1.0.0\"", kOpenMetrics},
      {"application/*", kOpenMetrics},
      {"application/*,*/*", kOpenMetrics},
      {protobuf, kProtobuf},
      {"application/vnd.google.protobuf ; Encoding=Delimited ; "
       "PROTO=\"io.prometheus.client.MetricFamily\"",
       kProtobuf},
      // Protocol buffers of another kind, or of a kind not said.
      {"application/vnd.google.protobuf", kText},
      {"application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=text",
       kText},
      {"application/vnd.google.protobuf;proto=other;encoding=delimited", kText},
      // Versions that there are not.
      {"application/openmetrics-text;version=0.0.1", kText},
      {"application/openmetrics-text;version=2.0.0,text/plain;version=0.0.4;q=0.1", kText},
      {"text/plain;version=1.0.0,application/openmetrics-text;q=0.1", kOpenMetrics},
      // Nothing that there is: a scrape never fails for its header.
      {"image/png", kText},
      {"*/*;q=0", kText},
      {"text/plain;q=0", kText},
  });
}

TEST(NegotiateFormat, Weights) {
  const std::string protobuf = kDelimited;
  ExpectFormats({
      {"text/plain;q=0.4,application/openmetrics-text;q=0.5", kOpenMetrics},
      {"text/plain;q=0.5,application/openmetrics-text;q=0.4", kText},
      {"text/plain;q=0.501,application/openmetrics-text;q=0.5", kText},
      {"text/plain,application/openmetrics-text;q=1.000", kText},  // equal: the first
      {"application/openmetrics-text,text/plain", kOpenMetrics},
      {protobuf + ";q=0.3,text/plain;q=0.4", kText},
      {protobuf + ";q=0.4,text/plain;q=0.3", kProtobuf},
      {protobuf + ",text/plain", kProtobuf},
      // What is named most exactly counts, not what is highest.
      {"*/*,text/plain;q=0.1,application/openmetrics-text;q=0.2", kOpenMetrics},
      {"text/plain;q=0,*/*", kOpenMetrics},
      {"text/*;q=0,*/*;q=0.1", kOpenMetrics},
      {"application/openmetrics-text;q=0,application/*,text/plain;q=0.2", kText},
      {"text/plain;q=0.9,text/plain;version=0.0.4;q=0.1,application/openmetrics-text;q=0.5",
       kOpenMetrics},
      {"application/openmetrics-text;q=0", kText},
      // Weights that are none: the element is not there.
      {"application/openmetrics-text;q=2", kText},
      {"application/openmetrics-text;q=-1", kText},
      {"application/openmetrics-text;q=high,text/plain;q=0.1", kText},
      {"application/openmetrics-text;q=", kText},
      {"application/openmetrics-text;q=1.001", kText},
      {"application/openmetrics-text;q=0.1234567890123456789", kOpenMetrics},
  });
}

TEST(NegotiateFormat, AbsurdHeaders) {
  using namespace std::string_literals;
  const std::string openmetrics = "application/openmetrics-text";
  std::string many;
  while (many.size() < 100'000) many += "text/plain;q=0.1;a=b;c,,;;";
  ExpectFormats({
      {",", kText},
      {",,,;;;q=1,=,", kText},
      {";;;;" + openmetrics, kText},
      {"\"" + openmetrics, kText},                        // a quote that does not end
      {"x/y;a=\",;\\\"," + openmetrics, kText},           // likewise
      {"x/y;a=\",;\\\"\"," + openmetrics, kOpenMetrics},  // one that does
      {openmetrics + ";a=\";q=0\"", kOpenMetrics},        // no weight: it is quoted
      {openmetrics + ";\\", kOpenMetrics},
      {"\xff\xfe\x80, " + openmetrics + " ;q=0.9 ; x", kOpenMetrics},
      {"*/plain", kText},
      {"*", kText},
      {"/", kText},
      {"text/plain/*," + openmetrics + ";q=0.1", kOpenMetrics},
      {many + "," + openmetrics, kOpenMetrics},
      {std::string(100'000, ',') + openmetrics, kOpenMetrics},
      {std::string(100'000, '"'), kText},
      {std::string(100'000, '\\'), kText},
  });
}

TEST(NegotiateGzip, AcceptedAndRefused) {
  for (const char* accepted :
       {"gzip", "GZIP", "x-gzip", "deflate, gzip;q=1.0, *;q=0.5", "gzip, deflate, br", "*",
        "gzip;q=0.001", "identity;q=0.5, gzip;q=0.5", "identity;q=0, gzip;q=0.2", "br,*;q=0.1",
        "gzip;q=0.5,gzip;q=0"}) {
    EXPECT_TRUE(NegotiateGzip(accepted)) << accepted;
  }
  for (const char* refused :
       {"", "identity", "deflate", "br", "gzip;q=0", "gzip;q=0.000", "gzip;q=0, *", "*;q=0",
        "gzip;q=x", "gzip;q=0.2, identity;q=0.3", "identity, gzip;q=0.9", "gzipped", "\"gzip\"",
        ";gzip", ",", "gz ip"}) {
    EXPECT_FALSE(NegotiateGzip(refused)) << refused;
  }
}

}  // namespace
}  // namespace nccl_pulse
