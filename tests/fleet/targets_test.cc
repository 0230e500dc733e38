// Addresses of endpoints, and lists of them.
#include "exporter/fleet/targets.h"

#include <sys/stat.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace nccl_pulse {
namespace {

using testing::HasSubstr;

Address Parsed(const std::string& text, bool otherwise_https = false) {
  Address address;
  std::string error;
  EXPECT_TRUE(ParseAddress(text, otherwise_https, &address, &error)) << error;
  return address;
}

TEST(Address, Forms) {
  EXPECT_EQ(Parsed("node-1:9410").name(), "node-1:9410");
  EXPECT_FALSE(Parsed("node-1:9410").is_https);
  EXPECT_TRUE(Parsed("node-1:9410", true).is_https);
  EXPECT_FALSE(Parsed("http://node-1:9410", true).is_https);
  EXPECT_EQ(Parsed("https://node-1").port, 443);
  EXPECT_EQ(Parsed("http://node-1/").port, 80);
  EXPECT_EQ(Parsed("https://mimir/prometheus/").path, "/prometheus");
  EXPECT_EQ(Parsed("[::1]:9410").host, "::1");
  EXPECT_EQ(Parsed("[::1]:9410").name(), "[::1]:9410");
  EXPECT_EQ(Parsed(":9410").host, "localhost");
  EXPECT_TRUE(Parsed(":9410").has_port);
  EXPECT_TRUE(Parsed("https://node-1").has_port);
  EXPECT_FALSE(Parsed("node-1").has_port);
}

TEST(Address, SaysWhatIsWrong) {
  const auto error_of = [](const std::string& text) {
    Address address;
    std::string error;
    EXPECT_FALSE(ParseAddress(text, false, &address, &error)) << text;
    EXPECT_THAT(error, HasSubstr(text.substr(0, 3)));
    return error;
  };
  EXPECT_THAT(error_of("ftp://x"), HasSubstr("neither http nor https"));
  EXPECT_THAT(error_of("node:0"), HasSubstr("between 1 and 65535"));
  EXPECT_THAT(error_of("node:port"), HasSubstr("not a number"));
  EXPECT_THAT(error_of("::1:9410"), HasSubstr("in brackets"));
  EXPECT_THAT(error_of("ann:abc@node:9410"), HasSubstr("into a file"));
  // Nothing that could begin another header or request.
  EXPECT_THAT(error_of("node:9410\r\nX: y"), HasSubstr("character"));
}

std::vector<std::string> Names(const std::string& text) {
  std::vector<Address> targets;
  std::string error;
  EXPECT_TRUE(ParseTargets(text, false, &targets, &error)) << error;
  std::vector<std::string> names;
  for (const Address& each : targets) {
    names.push_back((each.is_https ? "https " : "http ") + each.name());
  }
  return names;
}

TEST(Targets, JsonAndYaml) {
  EXPECT_THAT(Names(R"([{"targets": ["a:1", "b:2"], "labels": {"job": "x"}},
                       {"targets": ["c:3"], "labels": {"__scheme__": "https"}}])"),
              testing::ElementsAre("http a:1", "http b:2", "https c:3"));
  EXPECT_THAT(Names("- targets: ['a:1']\n- targets:\n    - b:2\n"),
              testing::ElementsAre("http a:1", "http b:2"));
}

TEST(Targets, SaysWhatIsWrong) {
  const auto error_of = [](const std::string& text) {
    std::vector<Address> targets;
    std::string error;
    EXPECT_FALSE(ParseTargets(text, false, &targets, &error)) << text;
    return error;
  };
  EXPECT_THAT(error_of("[}"), HasSubstr("neither JSON nor YAML: line 1, column "));
  EXPECT_THAT(error_of("{}"), HasSubstr("not a list of groups"));
  EXPECT_THAT(error_of("[]"), HasSubstr("no target"));
  EXPECT_THAT(error_of("[{\"labels\": {}}]"), HasSubstr("write [{\"targets\": [\"HOST:PORT\"]}]"));
  // One that cannot be asked is not left out.
  EXPECT_THAT(error_of("[{\"targets\": [\"a:1\", \"b:x\"]}]"), HasSubstr("b:x"));
}

TEST(Targets, NoFile) {
  std::vector<Address> targets;
  std::string error;
  EXPECT_FALSE(ReadTargetsFile("/nowhere/targets.json", false, &targets, &error));
  EXPECT_THAT(error, HasSubstr("/nowhere/targets.json"));
  const std::string fifo = testing::TempDir() + "/targets_" + std::to_string(getpid());
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  EXPECT_FALSE(ReadTargetsFile(fifo, false, &targets, &error));
  EXPECT_THAT(error, HasSubstr(fifo + ": it is not a regular file"));
}

}  // namespace
}  // namespace nccl_pulse
