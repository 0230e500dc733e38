#include "exporter/web/password_checker.h"

#include <poll.h>
#include <unistd.h>

#include <cstdint>
#include <string>

#include "gtest/gtest.h"

namespace nccl_pulse {
namespace {

using Verdict = PasswordChecker::Verdict;

// "abc", at the lowest cost there is.
constexpr char kHash[] = "$2b$04$abcdefghijklmnopqrstuuCi15uRb1eH7NAlJ/TgeJertyknQpYn2";

Verdict Wait(PasswordChecker* checker, const std::string& user, const std::string& password) {
  while (true) {
    const Verdict verdict = checker->Check(user, kHash, password);
    if (verdict != Verdict::kPending) return verdict;
    pollfd polled = {checker->verdicts().fd(), POLLIN, 0};
    poll(&polled, 1, -1);
    checker->verdicts().Clear();
  }
}

TEST(PasswordChecker, DoesNotWaitAndRemembers) {
  PasswordChecker checker;
  EXPECT_EQ(checker.Check("user", kHash, "abc"), Verdict::kPending);
  EXPECT_EQ(Wait(&checker, "user", "abc"), Verdict::kRight);
  EXPECT_EQ(checker.Check("user", kHash, "abc"), Verdict::kRight);
  EXPECT_EQ(Wait(&checker, "user", "abd"), Verdict::kWrong);
  EXPECT_EQ(checker.Check("user", kHash, "abd"), Verdict::kWrong);
}

TEST(PasswordChecker, KeepsUsersApart) {
  PasswordChecker checker;
  EXPECT_EQ(Wait(&checker, "one", "abd"), Verdict::kWrong);
  EXPECT_EQ(checker.Check("two", kHash, "abd"), Verdict::kPending);
}

TEST(PasswordChecker, GuessesDoNotPushOutWhoIsKnown) {
  PasswordChecker checker;
  EXPECT_EQ(Wait(&checker, "user", "abc"), Verdict::kRight);
  const std::size_t guesses = PasswordChecker::kRemembered + 10;
  for (std::size_t i = 0; i < guesses; ++i) {
    EXPECT_EQ(Wait(&checker, "user", std::to_string(i)), Verdict::kWrong);
  }
  EXPECT_EQ(checker.Check("user", kHash, "abc"), Verdict::kRight);
  EXPECT_EQ(checker.Check("user", kHash, std::to_string(guesses - 1)), Verdict::kWrong);
  EXPECT_EQ(checker.Check("user", kHash, "0"), Verdict::kPending);  // forgotten
}

TEST(PasswordChecker, TakesNoMoreThanItCanHold) {
  PasswordChecker checker;
  for (int i = 0; i < 1000; ++i) checker.Check("user", kHash, std::to_string(i));
  // Those that were not taken are when they ask again.
  EXPECT_EQ(Wait(&checker, "user", "999"), Verdict::kWrong);
  EXPECT_EQ(Wait(&checker, "user", "abc"), Verdict::kRight);
}

TEST(PasswordChecker, EndsInTheMiddleOfOne) {
  PasswordChecker checker;
  checker.Check("user", "$2b$14$abcdefghijklmnopqrstuuCi15uRb1eH7NAlJ/TgeJertyknQpYn2", "x");
}

}  // namespace
}  // namespace nccl_pulse
