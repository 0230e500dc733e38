// The demo's story goes on by what the endpoint says, and not otherwise.
#include "exporter/cli/demo_story.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace nccl_pulse {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using Scene = DemoStory::Scene;

DemoSight InBalance() {
  DemoSight sight;
  sight.comm = "00ab";
  return sight;
}
DemoSight Slow(int rank) {
  DemoSight sight = InBalance();
  sight.straggler = rank;
  sight.text = "slow text";
  return sight;
}
DemoSight Hang(const std::vector<int>& suspects) {
  DemoSight sight = InBalance();
  sight.suspects = suspects;
  sight.text = "hang text";
  return sight;
}

// The story at the begin of a scene; `now_s` is set to then.
DemoStory At(Scene scene, double* now_s) {
  DemoStory story;
  for (*now_s = 0; story.scene() != scene; ++*now_s) {
    EXPECT_LT(*now_s, 1000);
    const DemoSight sights[] = {InBalance(), InBalance(), Slow(kLateRank), Hang({kSilentRank}),
                                InBalance()};
    story.Advance(*now_s, sights[static_cast<int>(story.scene())]);
  }
  return story;
}

TEST(DemoStory, BeginsWhenTheJobIsSeen) {
  DemoStory story;
  EXPECT_THAT(story.Advance(0, DemoSight()), IsEmpty());
  EXPECT_THAT(story.Advance(20, DemoSight()), IsEmpty());
  EXPECT_THAT(story.Advance(21, InBalance()), ElementsAre(HasSubstr("all is well")));
  EXPECT_EQ(story.scene(), Scene::kBalance);
}

// Two demos at once, or a job that runs: whoever opens the page sees more than the story tells of.
TEST(DemoStory, SaysThatAnotherJobIsOnThePage) {
  DemoStory story;
  DemoSight sight = InBalance();
  sight.pid_of_other = 4711;
  EXPECT_THAT(
      story.Advance(0, sight),
      ElementsAre(AllOf(HasSubstr("another job"), HasSubstr("4711")), HasSubstr("all is well")));
  EXPECT_THAT(story.Advance(60, sight), ElementsAre(HasSubstr("p99"))) << "said once";
}

TEST(DemoStory, SaysThatAnotherJobHasComeLater) {
  DemoStory story;
  DemoSight sight = InBalance();
  EXPECT_THAT(story.Advance(0, sight), ElementsAre(HasSubstr("all is well")));
  sight.pid_of_other = 4711;
  EXPECT_THAT(story.Advance(1, sight), ElementsAre(HasSubstr("4711")));
  EXPECT_THAT(story.Advance(2, sight), IsEmpty()) << "said once";
}

// The median since the start moves only when half of the calls were late.
TEST(DemoStory, SaysToLookAtWhatAStragglerMovesAtOnce) {
  DemoStory story;
  story.Advance(0, InBalance());
  EXPECT_THAT(story.Advance(60, InBalance()),
              ElementsAre(AllOf(HasSubstr("p99 and Bus"), Not(HasSubstr("p50")))));
}

TEST(DemoStory, AStragglerIsWaitedFor) {
  double now_s;
  DemoStory story = At(Scene::kStraggler, &now_s);
  EXPECT_THAT(story.Advance(now_s + 60, InBalance()), IsEmpty());
  EXPECT_THAT(story.Advance(now_s + 61, Slow(kLateRank + 1)), IsEmpty()) << "another rank";
  EXPECT_THAT(story.Advance(now_s + 62, Slow(kLateRank)), ElementsAre(HasSubstr("slow text")));
  EXPECT_THAT(story.Advance(now_s + 63, Slow(kLateRank)), IsEmpty()) << "said once";
  EXPECT_EQ(story.scene(), Scene::kStraggler) << "it is to be read";
  EXPECT_THAT(story.Advance(now_s + 90, Slow(kLateRank)),
              ElementsAre(HasSubstr("stopped calling")));
  EXPECT_EQ(story.scene(), Scene::kHang);
}

TEST(DemoStory, AHangIsWaitedForUntilTheRightRankIsNamed) {
  double now_s;
  DemoStory story = At(Scene::kHang, &now_s);
  EXPECT_THAT(story.Advance(now_s + 60, Slow(kLateRank)), IsEmpty());
  EXPECT_THAT(story.Advance(now_s + 61, Hang({0})), IsEmpty());
  EXPECT_THAT(story.Advance(now_s + 62, Hang({kSilentRank})), ElementsAre(HasSubstr("hang text")));
  EXPECT_THAT(story.Advance(now_s + 62 + 20, Hang({kSilentRank})), IsEmpty())
      << "time to type `pulse diagnose`, which names it after 10 s";
  EXPECT_THAT(story.Advance(now_s + 89, Hang({kSilentRank})),
              ElementsAre(HasSubstr("calls again")));
}

TEST(DemoStory, TheNextRoundBeginsAfterTheHangHasEnded) {
  double now_s;
  DemoStory story = At(Scene::kGoesOn, &now_s);
  EXPECT_THAT(story.Advance(now_s + 60, Hang({kSilentRank})), IsEmpty());
  EXPECT_THAT(story.Advance(now_s + 61, Slow(kLateRank)),
              ElementsAre(HasSubstr("no longer says HANG")));
  EXPECT_EQ(story.round(), 0U);
  EXPECT_THAT(story.Advance(now_s + 89, InBalance()), ElementsAre(HasSubstr("has restarted")));
  EXPECT_EQ(story.round(), 1U);
  EXPECT_EQ(story.scene(), Scene::kBalance);
}

TEST(DemoStory, AnEndpointThatSaysNothingDoesNotStopIt) {
  DemoStory story;
  double now_s = 0;
  for (; story.round() == 0 && now_s < 1000; ++now_s) story.Advance(now_s, DemoSight());
  EXPECT_EQ(story.round(), 1U) << now_s;
}

// The clock counts from the machine's start.
TEST(DemoStory, WaitsForTheJobFromItsFirstLook) {
  DemoStory story;
  EXPECT_THAT(story.Advance(5000, DemoSight()), IsEmpty());
  EXPECT_THAT(story.Advance(5089, DemoSight()), IsEmpty());
  EXPECT_EQ(story.scene(), Scene::kNotBegun);
  EXPECT_THAT(story.Advance(5091, DemoSight()), ElementsAre(HasSubstr("all is well")));
}

TEST(DemoStory, SaysOnceThatTheEndpointDoesNotAnswer) {
  DemoStory story;
  DemoSight silent;
  silent.problem = "localhost:9410: Name or service not known";
  story.Advance(1000, InBalance());
  EXPECT_THAT(story.Advance(1001, silent), IsEmpty());
  EXPECT_THAT(story.Advance(1010, silent), IsEmpty());
  EXPECT_THAT(story.Advance(1011, silent),
              ElementsAre(AllOf(HasSubstr("not answered for 10 s: localhost:9410: Name"),
                                HasSubstr("can't tell what the page shows"))));
  EXPECT_THAT(story.Advance(1011.5, silent), IsEmpty());
  EXPECT_THAT(story.Advance(1011.6, InBalance()), IsEmpty());
  EXPECT_THAT(story.Advance(1011.7, silent), IsEmpty());
  EXPECT_THAT(story.Advance(1011.8, InBalance()), IsEmpty()) << "the next one may be silent";
}

TEST(DemoStory, SaysThatARankWasNotNamed) {
  double now_s;
  DemoStory slow = At(Scene::kStraggler, &now_s);
  EXPECT_THAT(slow.Advance(now_s + 100, InBalance()),
              ElementsAre(HasSubstr("did not name rank 2 within 90 s"), HasSubstr("stopped")));
  DemoStory hang = At(Scene::kHang, &now_s);
  EXPECT_THAT(hang.Advance(now_s + 100, Hang({0})),
              ElementsAre(HasSubstr("did not name rank 1 within 90 s"), HasSubstr("again")));
}

TEST(DemoSight, IsOfTheJobsOwnCommunicator) {
  const char* page = R"({"communicators": [
      {"comm": "1", "name": "dp", "hang": null, "straggler": null,
       "ranks": [{"active": false, "process": {"pid": 7}}]},
      {"comm": "2", "name": "dp", "hang": null, "straggler": null,
       "ranks": [{"active": true, "process": {"pid": 8}}]},
      {"comm": "4", "name": "tp", "hang": null, "straggler": null,
       "ranks": [{"active": false, "process": {"pid": 5}}]},
      {"comm": "3", "name": "dp",
       "hang": {"suspects": [1], "usual": false, "text": "hangs"},
       "straggler": {"rank": 2, "text": "lags"},
       "ranks": [{"active": true, "process": {"pid": 7}}]}]})";
  const DemoSight sight = DemoSight::Of(page, {7, 6});
  EXPECT_EQ(sight.comm, "3");
  EXPECT_THAT(sight.suspects, ElementsAre(1));
  EXPECT_EQ(sight.straggler, 2);
  EXPECT_EQ(sight.text, "hangs");
  EXPECT_EQ(sight.pid_of_other, 8);
  EXPECT_EQ(DemoSight::Of(page, {7, 8}).pid_of_other, 0);
  EXPECT_EQ(DemoSight::Of(page, {9}).comm, "");
  EXPECT_EQ(DemoSight::Of("[1]", {7}).comm, "");
  EXPECT_EQ(DemoSight::Of(page, {}).comm, "");
}

}  // namespace
}  // namespace nccl_pulse
