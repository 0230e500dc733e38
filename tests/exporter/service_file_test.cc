// What Prometheus is told about where the endpoint is.
#include "exporter/node/service_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>

#include "nlohmann/json.hpp"

namespace nccl_pulse {
namespace {

namespace fs = std::filesystem;

nlohmann::json Targets(const std::string& address, int port, bool https = false) {
  return nlohmann::json::parse(ServiceTargets(address, port, https));
}

TEST(ServiceTargetsTest, AllInterfacesAreNamedByTheHost) {
  for (const char* address : {"[::]:9410", "0.0.0.0:9410"}) {
    EXPECT_EQ(Targets(address, 9410)[0]["targets"], nlohmann::json({HostName() + ":9410"}));
  }
}

TEST(ServiceTargetsTest, OneAddressStandsAsItIs) {
  for (const std::string address : {"127.0.0.1:9411", "[::1]:9411"}) {
    const nlohmann::json targets = Targets(address, 9411, /*https=*/true);
    EXPECT_EQ(targets[0]["targets"], nlohmann::json({address}));
    EXPECT_EQ(targets[0]["labels"]["__scheme__"], "https");
    EXPECT_EQ(targets[0]["labels"]["__meta_nccl_pulse_host"], HostName());
  }
  EXPECT_EQ(Targets("127.0.0.1:9411", 9411)[0]["labels"]["__scheme__"], "http");
}

TEST(ServiceTargetsTest, AUnixSocketIsNoTarget) {
  EXPECT_EQ(Targets("unix:/run/pulse", 0), nlohmann::json::array());
}

class ServiceFileTest : public ::testing::Test {
 protected:
  ServiceFileTest() : folder_(testing::TempDir() + "/targets" + std::to_string(getpid())) {
    fs::create_directory(folder_);
  }
  ~ServiceFileTest() override { fs::remove_all(folder_); }

  bool Write(ServiceFile* file, int port) {
    std::string error;
    const bool is_written =
        file->Write("127.0.0.1:" + std::to_string(port), port, /*https=*/false, &error);
    EXPECT_TRUE(is_written) << error;
    return is_written;
  }
  // A process that has written this one.
  pid_t Process(int port) {
    int ready[2];
    EXPECT_EQ(pipe(ready), 0);
    const pid_t child = fork();
    if (child == 0) {
      ServiceFile file(folder_);
      if (!Write(&file, port) || write(ready[1], "", 1) != 1) _exit(1);
      while (true) pause();
    }
    char byte = 0;
    EXPECT_EQ(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    close(ready[1]);
    return child;
  }
  static void Kill(pid_t process) {
    kill(process, SIGKILL);
    waitpid(process, nullptr, 0);
  }
  static std::string Name(int port) {
    return "nccl-pulse-" + HostName() + "-" + std::to_string(port) + ".json";
  }
  std::string PathOf(const std::string& name) const { return folder_ + "/" + name; }
  std::string TextOf(const std::string& name) const {
    std::stringstream text;
    text << std::ifstream(PathOf(name)).rdbuf();
    return text.str();
  }
  std::set<std::string> Names() const {
    std::set<std::string> names;
    for (const auto& each : fs::directory_iterator(folder_)) names.insert(each.path().filename());
    return names;
  }

  const std::string folder_;
};

TEST_F(ServiceFileTest, ADeletedFileIsRestored) {
  ServiceFile file(folder_);
  ASSERT_TRUE(Write(&file, 9410));
  const std::string text = TextOf(Name(9410));
  fs::remove(PathOf(Name(9410)));
  std::string error;
  EXPECT_TRUE(file.Restore(&error)) << error;
  EXPECT_EQ(TextOf(Name(9410)), text);
  file.Remove();
  EXPECT_TRUE(file.Restore(&error)) << error;
  EXPECT_TRUE(Names().empty());  // it was withdrawn
}

TEST_F(ServiceFileTest, TheNextProcessRemovesWhatKilledOnesHaveLeft) {
  const pid_t killed = Process(9410);
  const pid_t living = Process(9411);
  Kill(killed);
  EXPECT_EQ(Names(), (std::set<std::string>{Name(9410), Name(9411)}));
  ServiceFile file(folder_);
  ASSERT_TRUE(Write(&file, 9412));
  EXPECT_EQ(Names(), (std::set<std::string>{Name(9411), Name(9412)}));
  Kill(living);
  file.RemoveAbandoned();
  EXPECT_EQ(Names(), std::set<std::string>{Name(9412)});
  file.Remove();
  EXPECT_TRUE(Names().empty());
}

// Another user may put anything at the name that is written first.
TEST_F(ServiceFileTest, ItsTemporaryNameIsNotOpened) {
  const std::string temporary =
      PathOf("nccl-pulse-" + HostName() + "-9410." + std::to_string(getpid()) + ".tmp");
  ASSERT_EQ(mkfifo(temporary.c_str(), 0666), 0);
  ASSERT_EQ(mkfifo(PathOf(Name(9411)).c_str(), 0666), 0);
  ServiceFile file(folder_);
  ASSERT_TRUE(Write(&file, 9410));
  EXPECT_TRUE(fs::is_regular_file(PathOf(Name(9410))));
  file.Remove();
  const std::string victim = PathOf("victim");
  std::ofstream(victim) << "text";
  fs::create_hard_link(victim, temporary);
  ASSERT_TRUE(Write(&file, 9410));
  EXPECT_EQ(TextOf("victim"), "text");
}

// In a folder that hosts share, no lock of theirs is seen.
TEST_F(ServiceFileTest, WhatMayBeAnotherHostsStays) {
  Kill(Process(9410));
  const std::string text = TextOf(Name(9410));
  std::string other_boot = text;
  other_boot[other_boot.find("boot\": \"") + 9] ^= 1;
  std::string no_boot = text;
  no_boot.replace(no_boot.find("boot"), 4, "host");
  const std::set<std::string> stay = {Name(1), Name(2), "nccl-pulse-other-3.json",
                                      "nccl-pulse-" + HostName() + "-a-4.json", "mine.json"};
  std::ofstream(PathOf(Name(1))) << other_boot;
  std::ofstream(PathOf(Name(2))) << no_boot;
  std::ofstream(PathOf("nccl-pulse-other-3.json")) << text;
  std::ofstream(PathOf("nccl-pulse-" + HostName() + "-a-4.json")) << text;
  std::ofstream(PathOf("mine.json")) << text;
  // Of one that was killed while it wrote.
  std::ofstream(PathOf("nccl-pulse-" + HostName() + "-5.4711.tmp")) << text;
  ServiceFile(folder_).RemoveAbandoned();
  EXPECT_EQ(Names(), stay);
}

TEST_F(ServiceFileTest, TakesBackWhatIsItsOwnAlone) {
  ServiceFile file(folder_);
  ASSERT_TRUE(Write(&file, 9410));
  const pid_t next = Process(9410);
  file.Remove();
  EXPECT_EQ(Names(), std::set<std::string>{Name(9410)}) << "somebody else serves there by now";
  Kill(next);
}

}  // namespace
}  // namespace nccl_pulse
