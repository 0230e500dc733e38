#include "exporter/web/password_checker.h"

#include <poll.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>

#include "gtest/gtest.h"

namespace nccl_pulse {
namespace {

using Verdict = PasswordChecker::Verdict;

// "abc", at the lowest cost there is.
constexpr char kHash[] = "$2b$04$abcdefghijklmnopqrstuuCi15uRb1eH7NAlJ/TgeJertyknQpYn2";

Verdict Wait(PasswordChecker* checker, const std::string& user, const std::string& password,
             PasswordChecker::Source source = 1) {
  while (true) {
    const Verdict verdict = checker->Check(user, kHash, password, source);
    if (verdict != Verdict::kPending) return verdict;
    pollfd polled = {checker->verdicts().fd(), POLLIN, 0};
    poll(&polled, 1, -1);
    checker->verdicts().Clear();
  }
}

struct PasswordCheckerTest : testing::Test {
  PasswordChecker checker;
};

TEST_F(PasswordCheckerTest, DoesNotWaitAndRemembers) {
  EXPECT_EQ(checker.Check("user", kHash, "abc", 1), Verdict::kPending);
  EXPECT_EQ(Wait(&checker, "user", "abc"), Verdict::kRight);
  EXPECT_EQ(checker.Check("user", kHash, "abc", 1), Verdict::kRight);
  EXPECT_EQ(Wait(&checker, "user", "abd"), Verdict::kWrong);
  EXPECT_EQ(checker.Check("user", kHash, "abd", 1), Verdict::kWrong);
}

TEST_F(PasswordCheckerTest, KeepsUsersApart) {
  EXPECT_EQ(Wait(&checker, "one", "abd"), Verdict::kWrong);
  EXPECT_EQ(checker.Check("two", kHash, "abd", 1), Verdict::kPending);
}

TEST_F(PasswordCheckerTest, GuessesDoNotPushOutWhoIsKnown) {
  EXPECT_EQ(Wait(&checker, "user", "abc"), Verdict::kRight);
  const std::size_t guesses = PasswordChecker::kRemembered + 10;
  for (std::size_t i = 0; i < guesses; ++i) {
    EXPECT_EQ(Wait(&checker, "user", std::to_string(i)), Verdict::kWrong);
  }
  EXPECT_EQ(checker.Check("user", kHash, "abc", 1), Verdict::kRight);
  EXPECT_EQ(checker.Check("user", kHash, std::to_string(guesses - 1), 1), Verdict::kWrong);
  EXPECT_EQ(checker.Check("user", kHash, "0", 1), Verdict::kPending);  // forgotten
}

TEST_F(PasswordCheckerTest, TakesNoMoreThanItCanHold) {
  for (int i = 0; i < 1000; ++i) checker.Check("user", kHash, std::to_string(i), 1);
  // Those that were not taken are when they ask again.
  EXPECT_EQ(Wait(&checker, "user", "999"), Verdict::kWrong);
  EXPECT_EQ(Wait(&checker, "user", "abc"), Verdict::kRight);
}

// Guesses from one host, as fast as they are taken.
TEST_F(PasswordCheckerTest, ANewcomerHasATurnAmongGuesses) {
  int guess = 0;
  const auto fill = [&] {
    for (int i = 0; i < 100; ++i) checker.Check("user", kHash, std::to_string(++guess), 7);
  };
  fill();
  checker.Check("user", kHash, "abc", 8);  // asked once
  for (int verdicts = 0; verdicts < 3; ++verdicts) {
    pollfd polled = {checker.verdicts().fd(), POLLIN, 0};
    poll(&polled, 1, -1);
    checker.verdicts().Clear();
    fill();
    if (checker.Check("user", kHash, "abc", 9) == Verdict::kRight) return;
  }
  FAIL() << "the newcomer had no turn";
}

TEST_F(PasswordCheckerTest, AsManyHostsAsThereArePlacesHaveOneEach) {
  const int hosts = static_cast<int>(PasswordChecker::kMaxQueued);
  for (int i = 0; i < 100; ++i) checker.Check("user", kHash, "guess " + std::to_string(i), 1000);
  for (int i = 0; i < hosts - 1; ++i) checker.Check("user", kHash, std::to_string(i), i);
  for (int i = 0; i < hosts - 1; ++i)
    EXPECT_EQ(Wait(&checker, "user", std::to_string(i), 2000), Verdict::kWrong);
}

// Processor time of the checker's thread, in seconds.
double CheckerSeconds() {
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name;
    std::ifstream(task.path() / "comm") >> name;
    if (name != "pulse-passwords") continue;
    double ran_ns = 0;
    std::ifstream(task.path() / "schedstat") >> ran_ns;
    return ran_ns * 1e-9;
  }
  return 0;
}

TEST(PasswordChecker, GuessesHaveABudget) {
  // 120 ms each on an idle core.
  constexpr char kSlow[] = "$2b$11$abcdefghijklmnopqrstuuCi15uRb1eH7NAlJ/TgeJertyknQpYn2";
  // Other tests' checkers end in their own time, under the same name.
  while (CheckerSeconds() > 0) usleep(1000);
  PasswordChecker checker;
  EXPECT_EQ(Wait(&checker, "user", "abc"), Verdict::kRight);
  const auto began = std::chrono::steady_clock::now();
  double passed_s = 0;
  for (int guess = 0; passed_s < 6;) {
    for (int i = 0; i < 50; ++i) checker.Check("user", kSlow, std::to_string(++guess), 1);
    usleep(20000);
    // Known passwords take no part in that.
    ASSERT_EQ(checker.Check("user", kHash, "abc", 2), Verdict::kRight);
    passed_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  }
  // The share of these seconds, a burst of 20 s, and the last password, however long it took here.
  // Without a budget: all of passed_s.
  EXPECT_GT(CheckerSeconds(), 0);
  EXPECT_LT(CheckerSeconds(), passed_s / 2);
}

TEST_F(PasswordCheckerTest, EndsInTheMiddleOfOne) {
  checker.Check("user", "$2b$14$abcdefghijklmnopqrstuuCi15uRb1eH7NAlJ/TgeJertyknQpYn2", "x", 1);
}

}  // namespace
}  // namespace nccl_pulse
