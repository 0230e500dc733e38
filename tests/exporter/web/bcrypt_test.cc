#include "exporter/web/bcrypt.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace nccl_pulse {
namespace {

using testing::HasSubstr;

// Of jBCrypt's own tests.
constexpr char kAbc[] = "$2a$06$If6bvum7DFjUnE9p2uDeDu0YHzrHM6tf.iqN8.yx.jNN1ILEf7h0i";

std::string Reason(const std::string& hash) {
  std::string reason;
  EXPECT_FALSE(IsBcryptHash(hash, &reason)) << hash;
  return reason;
}

TEST(Bcrypt, KnowsTheRightPassword) {
  EXPECT_TRUE(MatchesBcrypt(kAbc, "abc"));
  EXPECT_FALSE(MatchesBcrypt(kAbc, "abd"));
  EXPECT_FALSE(MatchesBcrypt(kAbc, ""));
  EXPECT_TRUE(MatchesBcrypt("$2a$06$DCq7YPn5Rq63x1Lad4cll.TV4S6ytwfsfvkgY8jIucDrjc8deX1s.", ""));
}

TEST(Bcrypt, TheThreeSpellingsAreOne) {
  for (const char letter : {'a', 'b', 'y'}) {
    std::string hash = kAbc;
    hash[2] = letter;
    std::string reason;
    EXPECT_TRUE(IsBcryptHash(hash, &reason)) << reason;
    EXPECT_TRUE(MatchesBcrypt(hash, "abc")) << hash;
  }
}

TEST(Bcrypt, AZeroByteDoesNotEndAPassword) {
  EXPECT_FALSE(MatchesBcrypt(kAbc, std::string("abc\0d", 5)));
}

TEST(Bcrypt, RefusesWhatIsNoHash) {
  for (const char* text : {"", "secret", "$2b$", "$2x$10$", "$1$abc", "$2b$1x$"}) {
    EXPECT_THAT(Reason(text), HasSubstr("begins with $2a$, $2b$ or $2y$")) << text;
  }
  const std::string abc = kAbc;
  EXPECT_THAT(Reason(abc.substr(0, 59)), HasSubstr("has 60 characters"));
  EXPECT_THAT(Reason(abc + "i"), HasSubstr("this one has 61"));
  EXPECT_THAT(Reason("$2a$06$" + std::string(53, '+')), HasSubstr("letters, digits"));
  EXPECT_THAT(Reason("$2a$03$" + abc.substr(7)), HasSubstr("cost of 3; it may be 4 to 16"));
  EXPECT_THAT(Reason("$2a$31$" + abc.substr(7)), HasSubstr("cost of 31"));
}

}  // namespace
}  // namespace nccl_pulse
