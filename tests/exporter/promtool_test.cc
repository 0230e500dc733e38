// The real promtool reads our pages.
#include <cstdio>
#include <string>

#include "exporter/exposition/families.h"
#include "exporter/exposition/text_format.h"
#include "gtest/gtest.h"
#include "tests/exporter/example_snapshots.h"

namespace nccl_pulse {
namespace {

// What `promtool check metrics` says of the page; "" when it has nothing to say.
std::string Check(const std::string& page) {
  const std::string path = testing::TempDir() + "/page";
  FILE* file = std::fopen(path.c_str(), "w");
  std::fwrite(page.data(), 1, page.size(), file);
  std::fclose(file);
  FILE* pipe = popen(("promtool check metrics < " + path + " 2>&1").c_str(), "r");
  std::string said;
  char buffer[4096];
  while (std::fgets(buffer, sizeof(buffer), pipe) != nullptr) said += buffer;
  const int status = pclose(pipe);
  if (status != 0 && said.empty()) said = "exit status " + std::to_string(status);
  return said;
}

std::string Page(std::vector<ProcessSnapshot> processes) {
  return TextFormat(BuildFamilies(SnapshotSet(std::move(processes)), {{"cluster", "a\"b\\c"}}, {}));
}

TEST(Promtool, FindsFaults) { EXPECT_NE(Check("# TYPE bad counter\nbad 1\n"), ""); }

TEST(Promtool, FullPage) { EXPECT_EQ(Check(Page({ExampleProcess()})), ""); }

TEST(Promtool, SameProcessAndCommunicatorTwice) {
  EXPECT_EQ(Check(Page({ExampleProcess(), ExampleProcess()})), "");
}

TEST(Promtool, EmptyPages) {
  ProcessSnapshot process = ExampleProcess();
  process.communicators.clear();
  EXPECT_EQ(Check(Page({process})), "");
  EXPECT_EQ(Check(Page({})), "");
}

TEST(Promtool, StringsFromElsewhere) {
  ProcessSnapshot process = ExampleProcess();
  process.hostname = "\"},{\\";
  process.communicators[0].name = "ünïcödé \xe2\x82\xac {}=\",";
  process.communicators[0].calls[0].op = "\"";
  EXPECT_EQ(Check(Page({process})), "");
}

}  // namespace
}  // namespace nccl_pulse
