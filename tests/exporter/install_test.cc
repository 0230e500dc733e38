// `pulse install`, as an init container runs it.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace nccl_pulse {
namespace {

namespace fs = std::filesystem;

constexpr char kPlugin[] = "plugin/libnccl-profiler-pulse.so";

std::string Bytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

TEST(Install, PutsThePluginThereUnderBothNames) {
  const std::string folder = testing::TempDir() + "/installed";
  fs::create_directory(folder);
  EXPECT_EQ(WEXITSTATUS(system(("exporter/pulse install " + folder).c_str())), 0);
  EXPECT_EQ(Bytes(folder + "/libnccl-profiler-pulse.so"), Bytes(kPlugin));
  EXPECT_EQ(Bytes(folder + "/librccl-profiler-pulse.so"), Bytes(kPlugin));
}

// A limit of the file's size stands in for a full disk: a write ends in the middle of the file.
TEST(Install, SaysWhyOnAFullDisk) {
  const std::string folder = testing::TempDir() + "/full";
  fs::create_directory(folder);
  const std::string target = folder + "/libnccl-profiler-pulse.so", log = folder + "/log";
  std::ofstream(target) << "old";
  const std::string command =
      "trap '' XFSZ; ulimit -f 100; exporter/pulse install " + folder + " 2>" + log;
  EXPECT_EQ(WEXITSTATUS(system(command.c_str())), 2);
  EXPECT_EQ(Bytes(log),
            "pulse: cannot write " + target + ": File too large; a file of that name is kept\n");
  EXPECT_EQ(Bytes(target), "old");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder), {}), 2);
}

}  // namespace
}  // namespace nccl_pulse
