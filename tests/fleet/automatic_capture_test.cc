// Captures that an agent takes by itself: for what, and which of them stay.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "exporter/fleet/capture_folder.h"
#include "exporter/fleet/suspicions.h"
#include "nlohmann/json.hpp"

namespace nccl_pulse {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

constexpr char kOne[] = "00000000000000aa";
constexpr char kOther[] = "00000000000000bb";

Json Communicator(const char* id, Json hang = nullptr, Json straggler = nullptr) {
  return {{"comm", id}, {"hang", std::move(hang)}, {"straggler", std::move(straggler)}};
}
std::string Page(std::vector<Json> communicators) {
  const Json page = {{"communicators", std::move(communicators)}};
  return page.dump();
}
const Json kHang = {{"verdict", "rank_not_called"}, {"usual", false}};
const Json kUsual = {{"verdict", "rank_not_called"}, {"usual", true}};

TEST(Suspicions, EachIsNewOnce) {
  Suspicions suspicions;
  Suspicions::Time now{};
  suspicions.Look(Page({Communicator(kOne), Communicator(kOther, kUsual)}), now);
  EXPECT_THAT(suspicions.New(), IsEmpty());
  suspicions.Look(Page({Communicator(kOne, kHang)}), now);
  EXPECT_THAT(suspicions.New(), ElementsAre("hang of communicator 00000000000000aa"));
  suspicions.Done();
  for (int i = 0; i < 100; ++i) {
    now += seconds(5);
    suspicions.Look(Page({Communicator(kOne, kHang)}), now);
    EXPECT_THAT(suspicions.New(), IsEmpty());
  }
  suspicions.Look(Page({Communicator(kOne, kHang), Communicator(kOther, kHang, {{"rank", 3}})}),
                  now);
  EXPECT_THAT(suspicions.New(),
              UnorderedElementsAre("hang of communicator 00000000000000bb",
                                   "rank 3 lags in communicator 00000000000000bb"));
}

TEST(Suspicions, AHangThatWasOverIsNewAgain) {
  Suspicions suspicions;
  Suspicions::Time now{};
  suspicions.Look(Page({Communicator(kOne, kHang, {{"rank", 1}})}), now);
  suspicions.Done();
  // A page that was missed, or made in a moment without a verdict.
  now += seconds(5);
  suspicions.Look(Page({Communicator(kOne)}), now);
  now += seconds(5);
  suspicions.Look(Page({Communicator(kOne, kHang)}), now);
  EXPECT_THAT(suspicions.New(), IsEmpty());
  suspicions.Look(Page({Communicator(kOne)}), now);
  now += Suspicions::kHangIsOver;
  suspicions.Look(Page({Communicator(kOne)}), now);
  suspicions.Look(Page({Communicator(kOne, kHang, {{"rank", 1}})}), now);
  EXPECT_THAT(suspicions.New(), ElementsAre("hang of communicator 00000000000000aa"))
      << "stragglers come and go";
}

// A capture may take longer than a hang needs to be over, and the endpoint may be silent for long.
TEST(Suspicions, NothingEndsWhileNoPageIsRead) {
  Suspicions suspicions;
  Suspicions::Time now{};
  suspicions.Look(Page({Communicator(kOne, kHang)}), now);
  suspicions.Done();
  now += 2 * Suspicions::kHangIsOver;
  suspicions.Look(Page({Communicator(kOne, kHang)}), now);
  EXPECT_THAT(suspicions.New(), IsEmpty()) << "after a long capture";
  for (int i = 0; i < 10; ++i) {
    now += Suspicions::kHangIsOver;
    suspicions.Look("busy", now);
  }
  suspicions.Look(Page({Communicator(kOne)}), now);  // made in a moment without a verdict
  now += seconds(5);
  suspicions.Look(Page({Communicator(kOne, kHang)}), now);
  EXPECT_THAT(suspicions.New(), IsEmpty()) << "after pages that were none";
}

// It need not wait until some time after the capture of a straggler.
TEST(Suspicions, KnowsAHangFromAStraggler) {
  Suspicions suspicions;
  const Suspicions::Time now{};
  suspicions.Look(Page({Communicator(kOne, nullptr, {{"rank", 1}})}), now);
  EXPECT_FALSE(suspicions.HasNewHang());
  suspicions.Done();
  suspicions.Look(Page({Communicator(kOne, kHang, {{"rank", 1}})}), now);
  EXPECT_TRUE(suspicions.HasNewHang());
  suspicions.Done();
  EXPECT_FALSE(suspicions.HasNewHang());
}

TEST(Suspicions, SaysWhenItIsFull) {
  Suspicions suspicions;
  Suspicions::Time now{};
  std::vector<Json> communicators;
  for (std::size_t i = 0; i < Suspicions::kMost; ++i) {
    communicators.push_back(
        Communicator(absl::StrCat(absl::Hex(i, absl::kZeroPad16)).c_str(), kHang));
  }
  suspicions.Look(Page(communicators), now);
  EXPECT_FALSE(suspicions.is_full());
  communicators.push_back(Communicator("ffffffffffffffff", kHang));
  suspicions.Look(Page(communicators), now);
  EXPECT_TRUE(suspicions.is_full());
  EXPECT_EQ(suspicions.New().size(), Suspicions::kMost);
}

TEST(Suspicions, StragglersLeaveRoomForHangs) {
  Suspicions suspicions;
  Suspicions::Time now{};
  std::vector<Json> lagging;
  for (std::size_t i = 0; i <= Suspicions::kMost; ++i) {
    lagging.push_back(
        Communicator(absl::StrCat(absl::Hex(i, absl::kZeroPad16)).c_str(), nullptr, {{"rank", 1}}));
  }
  suspicions.Look(Page(lagging), now);
  EXPECT_TRUE(suspicions.is_full());
  suspicions.Done();
  suspicions.Look(Page({Communicator(kOne, kHang)}), now);
  EXPECT_FALSE(suspicions.is_full());
  EXPECT_THAT(suspicions.New(), ElementsAre("hang of communicator 00000000000000aa"));
  suspicions.Look(Page({}), now);
  now += Suspicions::kStragglerIsOver;
  suspicions.Look(Page({}), now);  // all are over
  suspicions.Look(Page(lagging), now);
  EXPECT_EQ(suspicions.New().size(), Suspicions::kMost) << "what is over takes no room";
}

TEST(Suspicions, AnyPageIsTaken) {
  Suspicions suspicions;
  const Suspicions::Time now{};
  for (const char* text : {"", "[]", "{}", "{\"communicators\":3}", "{\"communicators\":[3,{}]}",
                           "{\"communicators\":[{\"comm\":3,\"hang\":{}}]}",
                           "{\"communicators\":[{\"comm\":\"../x\",\"hang\":{}}]}",
                           "{\"communicators\":[{\"comm\":\"00000000000000aa\",\"hang\":1,"
                           "\"straggler\":{\"rank\":\"x\"}}]}"}) {
    suspicions.Look(text, now);
    EXPECT_THAT(suspicions.New(), IsEmpty()) << text;
  }
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

// Else what an earlier release has kept would stay for ever, beyond the limits.
TEST_F(CaptureFolderTest, CapturesThatNameNoAgentAreOwn) {
  Make("nccl-pulse-auto-20210101-000001.tar.gz");
  Make("nccl-pulse-auto-20210101-000003.tar.gz");
  Make("nccl-pulse-auto-20210101-000003.tar.gz.partial-99999999");
  Make("nccl-pulse-auto-node7-9410-20210101-000002.tar.gz");
  Make("nccl-pulse-auto-node7-9410-20210101-000004.tar.gz");
  RemovePartialCaptures(Own());
  RemoveOldCaptures(Own(), {2, 1 << 20});
  EXPECT_THAT(Names(), UnorderedElementsAre("nccl-pulse-auto-20210101-000003.tar.gz",
                                            "nccl-pulse-auto-node7-9410-20210101-000004.tar.gz"));
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
