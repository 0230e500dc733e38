#include "exporter/cli/plugin_file.h"

#include <elf.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>

namespace nccl_pulse {
namespace {

namespace fs = std::filesystem;

constexpr char kPlugin[] = "plugin/libnccl-profiler-pulse.so";
constexpr char kNoShared[] = "is not a shared library";
constexpr char kOther[] = "is not a profiler plugin for NCCL: it does not export ncclProfiler_v5";

std::string Bytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

std::string WhyNoPluginOf(const std::string& bytes) {
  const std::string path = testing::TempDir() + "/file.so";
  std::ofstream(path, std::ios::binary) << bytes;
  return WhyNoPlugin(path);
}

TEST(PluginFile, TakesOurs) { EXPECT_EQ(WhyNoPlugin(kPlugin), ""); }

TEST(PluginFile, RefusesWhatIsNone) {
  EXPECT_EQ(WhyNoPlugin("/etc/passwd"), kNoShared);
  EXPECT_EQ(WhyNoPlugin("/etc"), kNoShared);
  EXPECT_EQ(WhyNoPlugin("/dev/zero"), kNoShared);
  EXPECT_EQ(WhyNoPluginOf(""), kNoShared);
  EXPECT_EQ(WhyNoPlugin("/nowhere.so"), "cannot be read: No such file or directory");
  EXPECT_EQ(WhyNoPlugin("/proc/self/exe"), kOther) << "a program may be one, by its type";
  std::string bytes = Bytes(kPlugin);
  bytes[offsetof(Elf64_Ehdr, e_machine)] ^= 1;
  EXPECT_EQ(WhyNoPluginOf(bytes), "is for another kind of machine");
}

TEST(PluginFile, ReadsNothingBehindADamagedOne) {
  const std::string bytes = Bytes(kPlugin);
  EXPECT_EQ(WhyNoPluginOf(bytes.substr(0, sizeof(Elf64_Ehdr) - 1)), kNoShared);
  EXPECT_EQ(WhyNoPluginOf(bytes.substr(0, bytes.size() / 2)), kOther)
      << "its sections are at the end";
  std::minstd_rand random(1);
  Elf64_Ehdr header;
  std::memcpy(&header, bytes.data(), sizeof(header));
  for (int i = 0; i < 200; ++i) {
    std::string damaged = bytes;
    for (int n = 0; n < 8; ++n) {
      // The header, or the sections' headers.
      const std::size_t at = n % 2 == 0
                                 ? 20 + random() % (sizeof(header) - 20)
                                 : header.e_shoff + random() % (bytes.size() - header.e_shoff);
      damaged[at] = static_cast<char>(random());
    }
    WhyNoPluginOf(damaged);
  }
}

TEST(PluginFile, InstallPutsNothingElseThere) {
  const std::string folder = testing::TempDir() + "/installed";
  fs::create_directory(folder);
  const auto install = [&](const std::string& library) {
    const int status =
        system(("exporter/pulse install " + folder + " --library=" + library).c_str());
    return WEXITSTATUS(status);
  };
  EXPECT_EQ(install("/etc/passwd"), 2);
  EXPECT_TRUE(fs::is_empty(folder));
  EXPECT_EQ(install(kPlugin), 0);
  EXPECT_EQ(Bytes(folder + "/librccl-profiler-pulse.so"), Bytes(kPlugin));
}

// A limit of the file's size stands in for a full disk: a write ends in the middle of the file.
TEST(PluginFile, InstallOnAFullDiskSaysWhy) {
  const std::string folder = testing::TempDir() + "/full";
  fs::create_directory(folder);
  const std::string target = folder + "/libnccl-profiler-pulse.so", log = folder + "/log";
  std::ofstream(target) << "old";
  const std::string command = "trap '' XFSZ; ulimit -f 100; exporter/pulse install " + folder +
                              " --library=" + kPlugin + " 2>" + log;
  EXPECT_EQ(WEXITSTATUS(system(command.c_str())), 2);
  EXPECT_EQ(Bytes(log),
            "pulse: cannot write " + target + ": File too large; a file of that name is kept\n");
  EXPECT_EQ(Bytes(target), "old");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder), {}), 2);
}

}  // namespace
}  // namespace nccl_pulse
