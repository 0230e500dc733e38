#include "exporter/capture/bundle.h"

#include <linux/capability.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace nccl_pulse {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class BundleTest : public testing::Test {
 protected:
  BundleTest() : folder_(fs::path(testing::TempDir()) / "bundle") {
    fs::remove_all(folder_);
    fs::create_directory(folder_);
    bundle_.Add("verdict.txt", "a verdict\n");
    bundle_.Add("endpoints/host:9410/calls/ab.json", std::string(100000, 'x'));
  }
  std::string Path(const char* name) const { return (folder_ / name).string(); }
  // Whatever its name.
  std::size_t Files() const {
    std::size_t files = 0;
    for (const auto& each : fs::directory_iterator(folder_)) files += each.exists() ? 1 : 0;
    return files;
  }
  static std::string Content(const std::string& path) {
    std::stringstream content;
    content << std::ifstream(path, std::ios::binary).rdbuf();
    return content.str();
  }

  fs::path folder_;
  Bundle bundle_;
  std::string error_;
};

TEST_F(BundleTest, AFolder) {
  ASSERT_TRUE(bundle_.Write(Path("out/"), &error_)) << error_;
  EXPECT_EQ(Content(Path("out/verdict.txt")), "a verdict\n");
  EXPECT_EQ(Content(Path("out/endpoints/host_9410/calls/ab.json")).size(), 100000u);
  EXPECT_EQ(Files(), 1u);
}

TEST_F(BundleTest, AnArchiveThatTarReads) {
  ASSERT_TRUE(bundle_.Write(Path("out.tar.gz"), &error_)) << error_;
  EXPECT_EQ(Files(), 1u);
  const std::string command =
      "cd " + folder_.string() + " && tar xzf out.tar.gz";  // NOLINT(cert-env33-c)
  ASSERT_EQ(std::system(command.c_str()), 0);
  EXPECT_EQ(Content(Path("out/verdict.txt")), "a verdict\n");
  EXPECT_EQ(Content(Path("out/endpoints/host_9410/calls/ab.json")).size(), 100000u);
}

TEST_F(BundleTest, NamesCannotSteerThePath) {
  bundle_.Add("endpoints/../../../etc/x", "x");
  bundle_.Add("verdict.txt", "another");
  ASSERT_TRUE(bundle_.Write(Path("out"), &error_)) << error_;
  EXPECT_EQ(Content(Path("out/endpoints/__/__/__/etc/x")), "x");
  EXPECT_EQ(Content(Path("out/verdict.txt_2")), "another");
  EXPECT_EQ(Files(), 1u);
}

// Each stays a file of its own, and inside of the folder.
TEST_F(BundleTest, LongNamesAndAnArchiveWithoutAName) {
  for (const std::size_t letters : {40, 44, 48, 49, 50, 82, 88, 99, 300}) {
    const std::string folder = "endpoints/" + std::string(letters, 'h');
    for (const char* name : {"/calls/ab.json", "/calls/cd.json", "/metrics.txt", "/"}) {
      bundle_.Add(folder + name, folder + name);
    }
  }
  const std::size_t files = bundle_.size();
  EXPECT_EQ(files, 38u);
  ASSERT_TRUE(bundle_.Write(Path("out"), &error_)) << error_;
  const std::string name = std::string(120, 'o') + ".tar.gz";
  ASSERT_TRUE(bundle_.Write(Path(name.c_str()), &error_)) << error_;
  ASSERT_TRUE(bundle_.Write(Path(".tar.gz"), &error_)) << error_;
  const std::string command =
      "cd " + folder_.string() +
      " && mkdir a b && tar xzf ooo*.gz -C a && tar xzf .tar.gz -C b && test ! -e b/verdict.txt"
      " && for each in out a/* b/*; do find $each -type f -printf '%P\\n' | sort > list;"
      " test $(wc -l < list) = " +
      std::to_string(files) +
      " || exit 1; cmp list list1 2> /dev/null || test $each = out || exit 1; cp list list1; done";
  EXPECT_EQ(std::system(command.c_str()), 0);  // NOLINT(cert-env33-c)
}

// Root may write into every folder by its capabilities alone.
bool GiveUpCapabilities() {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3]{};
  return syscall(SYS_capset, &header, none) == 0;
}

TEST_F(BundleTest, WhatExistsStays) {
  for (const char* name : {"out", "out.tar.gz"}) {
    std::ofstream(Path(name)) << "mine";
    EXPECT_FALSE(bundle_.Write(Path(name), &error_));
    EXPECT_THAT(error_, HasSubstr("exists already"));
    EXPECT_EQ(Content(Path(name)), "mine");
  }
  EXPECT_EQ(Files(), 2u);
}

TEST_F(BundleTest, NoFolderToWriteInto) {
  EXPECT_FALSE(bundle_.Write(Path("nowhere/out"), &error_));
  EXPECT_THAT(error_, HasSubstr("there is no folder"));
  chmod(folder_.c_str(), 0500);
  // In a child: what a process gives up it does not get back.
  fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    if (!GiveUpCapabilities()) _exit(2);
    const bool written = bundle_.Write(Path("out"), &error_);
    fputs(error_.c_str(), stderr);
    _exit(!written && error_.find("cannot write into") != error_.npos ? 0 : 1);
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  chmod(folder_.c_str(), 0700);
}

// A disk that is full, by a limit on file sizes.
TEST_F(BundleTest, NothingIsLeftOfWhatCouldNotBeWritten) {
  bundle_.Add("random", [] {
    std::string text;  // that gzip cannot make small
    unsigned state = 1;
    for (int i = 0; i < 200000; ++i)
      text.push_back(static_cast<char>((state = state * 1664525 + 1013904223) >> 24));
    return text;
  }());
  signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  rlimit small = before;
  small.rlim_cur = 50000;
  setrlimit(RLIMIT_FSIZE, &small);
  const bool folder = bundle_.Write(Path("out"), &error_);
  const std::string folder_error = error_;
  const bool archive = bundle_.Write(Path("out.tar.gz"), &error_);
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_FALSE(folder);
  EXPECT_THAT(folder_error, HasSubstr("cannot write"));
  EXPECT_FALSE(archive);
  EXPECT_THAT(error_, HasSubstr("cannot write"));
  EXPECT_EQ(Files(), 0u);
}

}  // namespace
}  // namespace nccl_pulse
