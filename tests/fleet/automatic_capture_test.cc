// Captures that an agent takes by itself: for what, and which of them stay.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "exporter/capture/capture_folder.h"
#include "exporter/watch/automatic_captures.h"

namespace nccl_pulse {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

constexpr double kStart = 1'700'000'000;

JobHang Hang(const char* comm, double since_s) {
  JobHang hang;
  hang.suspect.comm = comm;
  hang.since_s = since_s;
  return hang;
}
JobSlow Slow(const char* host, const char* pid) {
  JobSlow slow;
  slow.suspect.hostname = host;
  slow.suspect.pid = pid;
  return slow;
}
WatchedJob Job(const char* id, std::vector<JobHang> hangs, std::vector<JobSlow> stragglers = {}) {
  WatchedJob job;
  job.job_id = job.workload = id;
  job.findings.hangs = std::move(hangs);
  job.findings.stragglers = std::move(stragglers);
  return job;
}

class UncapturedTest : public ::testing::Test {
 protected:
  // What is new in a round so many seconds after the start.
  std::vector<std::string> See(double seconds, std::vector<WatchedJob> jobs) {
    WatchState state;
    // The wall clock goes back all the time.
    state.round_s = kStart - seconds;
    state.round_at =
        WatchState::Time() + std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
    for (WatchedJob& job : jobs) {
      job.findings.looked_at = state.round_at;
      for (JobHang& hang : job.findings.hangs) {
        hang.lasted_s = seconds - (hang.since_s - kStart);
        hang.since_s = state.round_s - hang.lasted_s;
      }
    }
    state.jobs = std::move(jobs);
    uncaptured_.See(state);
    std::vector<std::string> reasons;
    for (const Uncaptured::Trouble& each : uncaptured_.fresh()) reasons.push_back(each.reason);
    return reasons;
  }
  void Done() { uncaptured_.Done(std::vector<Uncaptured::Trouble>(uncaptured_.fresh())); }

  Uncaptured uncaptured_;
};

TEST_F(UncapturedTest, EachHangIsNewOnce) {
  EXPECT_THAT(See(0, {Job("7", {})}), IsEmpty());
  EXPECT_THAT(See(10, {Job("7", {Hang("aa", kStart)})}), ElementsAre("hang of communicator aa"));
  EXPECT_THAT(See(12, {Job("7", {Hang("aa", kStart)})}), ElementsAre("hang of communicator aa"))
      << "no capture was taken yet";
  Done();
  EXPECT_THAT(uncaptured_.fresh(), IsEmpty());
  // It is the same hang if the verdict names another communicator, or was missing for a round.
  EXPECT_THAT(See(14, {Job("7", {Hang("bb", kStart)})}), IsEmpty());
  EXPECT_THAT(See(16, {}), IsEmpty());
  EXPECT_THAT(See(1000, {Job("7", {Hang("aa", kStart)})}), IsEmpty());
  EXPECT_THAT(See(1002, {Job("7", {Hang("aa", kStart)}), Job("8", {Hang("cc", kStart + 990)})}),
              ElementsAre("hang of communicator cc"))
      << "another job";
}

TEST_F(UncapturedTest, AHangThatBeganAfterTheCaptureIsNew) {
  See(10, {Job("7", {Hang("aa", kStart)})});
  Done();
  EXPECT_THAT(See(100, {Job("7", {Hang("aa", kStart + 60)})}),
              ElementsAre("hang of communicator aa"));
}

// A capture may take longer than a hang of another job needs to be reported.
TEST_F(UncapturedTest, AHangThatIsReportedDuringACaptureIsNew) {
  See(10, {Job("7", {Hang("aa", kStart)})});
  const std::vector<Uncaptured::Trouble> taken = uncaptured_.fresh();
  See(50, {Job("7", {Hang("aa", kStart + 30)}), Job("8", {Hang("bb", kStart + 40)})});
  uncaptured_.Done(taken);
  EXPECT_THAT(See(52, {Job("7", {Hang("aa", kStart + 30)}), Job("8", {Hang("bb", kStart + 40)})}),
              ElementsAre("hang of communicator aa", "hang of communicator bb"));
}

// Stragglers come and go. A hang need not wait until some time after the capture of one.
TEST_F(UncapturedTest, AStragglerIsNewAfterHalfAnHour) {
  const WatchedJob slow = Job("7", {}, {Slow("node7", "42"), Slow("node8", "")});
  EXPECT_THAT(See(0, {slow}), ElementsAre("pid 42 on host node7 lags", "host node8 lags"));
  EXPECT_FALSE(uncaptured_.fresh().front().is_hang);
  Done();
  EXPECT_THAT(See(100, {}), IsEmpty());
  EXPECT_THAT(See(200, {slow}), IsEmpty());
  EXPECT_THAT(
      See(201 + std::chrono::duration<double>(Uncaptured::kStragglerIsOver).count(), {slow}),
      ElementsAre("pid 42 on host node7 lags", "host node8 lags"));
  EXPECT_THAT(See(2100, {Job("7", {Hang("aa", kStart)}, {Slow("node7", "42")})}),
              ElementsAre("hang of communicator aa", "pid 42 on host node7 lags"));
  EXPECT_TRUE(uncaptured_.fresh().front().is_hang);
}

TEST_F(UncapturedTest, RemembersALimitedNumberOfJobs) {
  std::vector<WatchedJob> jobs;
  for (std::size_t i = 0; i <= Uncaptured::kMost; ++i) {
    jobs.push_back(Job(absl::StrCat(i).c_str(), {Hang("aa", kStart)}));
  }
  EXPECT_EQ(See(10, jobs).size(), jobs.size());
  Done();
  EXPECT_EQ(See(12, jobs).size(), 1u) << "the oldest is forgotten";
}

class CaptureFolderTest : public ::testing::Test {
 protected:
  CaptureFolderTest() {
    std::string name = ::testing::TempDir() + "/capturesXXXXXX";
    folder_ = mkdtemp(name.data());
  }
  ~CaptureFolderTest() override { fs::remove_all(folder_); }
  void Make(const std::string& name, std::size_t bytes = 100) {
    std::ofstream(fs::path(folder_) / name) << std::string(bytes, 'x');
  }
  CaptureFolder Own() const { return {folder_, "node7", 9410}; }
  std::vector<std::string> Names() {
    std::vector<std::string> names;
    for (const auto& each : fs::directory_iterator(folder_))
      names.push_back(each.path().filename());
    return names;
  }
  std::string folder_;
};

TEST_F(CaptureFolderTest, TheOldestGoFirstAndNothingElseGoes) {
  const std::vector<std::string> others = {"nccl-pulse-capture-20200101-000000.tar.gz",
                                           "nccl-pulse-auto-node7-9410-20200101-000000.tar.gz.mine",
                                           "nccl-pulse-auto-node7-9410-20200101-000000x.tar.gz",
                                           "nccl-pulse-auto-node7-9410-.tar.gz", "notes.txt"};
  for (const std::string& each : others) Make(each, 10000);
  fs::create_directory(fs::path(folder_) / "nccl-pulse-auto-node7-9410-20200101-000009.tar.gz");
  fs::create_symlink("/etc/hostname",
                     fs::path(folder_) / "nccl-pulse-auto-node7-9410-20200101-000008.tar.gz");
  for (int i = 1; i <= 5; ++i)
    Make(absl::StrCat("nccl-pulse-auto-node7-9410-20210101-00000", i, ".tar.gz"));
  Make("nccl-pulse-auto-node7-9410-20210101-000005-2.tar.gz");
  RemoveOldCaptures(Own(), {3, 1 << 20});
  std::vector<std::string> expected = others;
  for (const char* each : {"nccl-pulse-auto-node7-9410-20200101-000009.tar.gz",
                           "nccl-pulse-auto-node7-9410-20200101-000008.tar.gz",
                           "nccl-pulse-auto-node7-9410-20210101-000004.tar.gz",
                           "nccl-pulse-auto-node7-9410-20210101-000005.tar.gz",
                           "nccl-pulse-auto-node7-9410-20210101-000005-2.tar.gz"}) {
    expected.emplace_back(each);
  }
  EXPECT_THAT(Names(), ::testing::UnorderedElementsAreArray(expected));
}

TEST_F(CaptureFolderTest, TheTenthOfASecondIsNewerThanTheSecond) {
  const std::string second = "nccl-pulse-auto-node7-9410-20210101-000005";
  for (const char* number : {"", "-2", "-9", "-10"}) Make(absl::StrCat(second, number, ".tar.gz"));
  RemoveOldCaptures(Own(), {2, 1 << 20});
  EXPECT_THAT(Names(), UnorderedElementsAre(second + "-9.tar.gz", second + "-10.tar.gz"));
}

TEST_F(CaptureFolderTest, BytesAreLimitedToo) {
  for (int i = 1; i <= 4; ++i) {
    Make(absl::StrCat("nccl-pulse-auto-node7-9410-20210101-00000", i, ".tar.gz"), 1000);
  }
  RemoveOldCaptures(Own(), {100, 2500});
  EXPECT_THAT(Names(), UnorderedElementsAre("nccl-pulse-auto-node7-9410-20210101-000003.tar.gz",
                                            "nccl-pulse-auto-node7-9410-20210101-000004.tar.gz"));
  RemoveOldCaptures(Own(), {100, 10});
  EXPECT_THAT(Names(), ElementsAre("nccl-pulse-auto-node7-9410-20210101-000004.tar.gz"))
      << "the newest stays in any case";
}

TEST_F(CaptureFolderTest, WhatAnEarlierAgentDidNotFinishIsRemoved) {
  const std::string name = "nccl-pulse-auto-node7-9410-20210101-000001.tar.gz.partial-";
  Make(absl::StrCat(name, getpid()));
  Make(absl::StrCat(name, getppid()));  // it lives
  Make(absl::StrCat(name, "x"));
  Make("hang.tar.gz.partial-99999999");
  RemovePartialCaptures(Own());
  EXPECT_THAT(Names(), UnorderedElementsAre(absl::StrCat(name, getppid()), absl::StrCat(name, "x"),
                                            "hang.tar.gz.partial-99999999"));
}

// On a file system that several hosts share, or under several agents of one host.
TEST_F(CaptureFolderTest, WhatIsOtherAgentsStays) {
  std::vector<std::string> others;
  for (const char* agent : {"node8-9410", "node7-9411", "node7-94", "node7-9410-9410", "7-9410"}) {
    for (int i = 1; i <= 3; ++i) {
      others.push_back(absl::StrCat("nccl-pulse-auto-", agent, "-20210101-00000", i, ".tar.gz"));
    }
    // Of a pid that nobody has here, but perhaps there.
    others.push_back(
        absl::StrCat("nccl-pulse-auto-", agent, "-20210101-000004.tar.gz.partial-99999999"));
  }
  for (const std::string& each : others) Make(each);
  Make("nccl-pulse-auto-node7-9410-20210101-000005.tar.gz");
  RemovePartialCaptures(Own());
  RemoveOldCaptures(Own(), {1, 1});
  others.emplace_back("nccl-pulse-auto-node7-9410-20210101-000005.tar.gz");
  EXPECT_THAT(Names(), ::testing::UnorderedElementsAreArray(others));
}

TEST_F(CaptureFolderTest, AnyHostHasAName) {
  const CaptureFolder folder = {folder_, "../a b/" + std::string(300, 'x'), 9410};
  const std::string path = NewCapturePath(folder, 1600000000000000000);
  EXPECT_EQ(fs::path(path).parent_path(), folder_);
  Make(fs::path(path).filename());
  EXPECT_TRUE(fs::exists(path));
  EXPECT_TRUE(IsOwnCapture(folder, fs::path(path).filename().string()));
}

TEST_F(CaptureFolderTest, NamesAreNew) {
  const std::string first = NewCapturePath(Own(), 1600000000000000000);
  EXPECT_EQ(first, folder_ + "/nccl-pulse-auto-node7-9410-20200913-122640.tar.gz");
  Make(fs::path(first).filename());
  const std::string second = NewCapturePath(Own(), 1600000000000000000);
  EXPECT_EQ(second, folder_ + "/nccl-pulse-auto-node7-9410-20200913-122640-2.tar.gz");
  for (const std::string& each : {first, second}) {
    EXPECT_TRUE(IsOwnCapture(Own(), fs::path(each).filename().string())) << each;
  }
}

}  // namespace
}  // namespace nccl_pulse
