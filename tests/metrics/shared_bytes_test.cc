#include "metrics/shared_bytes.h"

#include <cstring>
#include <string>

#include "gtest/gtest.h"

namespace nccl_pulse {
namespace {

std::string Clean(const std::string& raw) {
  char field[64];
  CopyToShared(field, raw);
  return CopyFromShared(field);
}

TEST(SharedBytes, KeepsTextAndUtf8) {
  EXPECT_EQ(Clean(""), "");
  EXPECT_EQ(Clean("node-17.example ~!\"\\"), "node-17.example ~!\"\\");
  EXPECT_EQ(Clean("caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80"),
            "caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80");
  EXPECT_EQ(Clean("\xc2\xa0\xed\x9f\xbf\xee\x80\x80\xf4\x8f\xbf\xbf"),
            "\xc2\xa0\xed\x9f\xbf\xee\x80\x80\xf4\x8f\xbf\xbf");
}

TEST(SharedBytes, ControlCharactersGo) {
  EXPECT_EQ(Clean("a\nb\tc\x7f\x1b[2J"), "a?b?c??[2J");
  EXPECT_EQ(Clean("\xc2\x9b"
                  "2J"),
            "??2J")
      << "a terminal may take U+009B for the start of a command";
}

TEST(SharedBytes, MalformedUtf8Goes) {
  EXPECT_EQ(Clean("\x80"), "?");
  EXPECT_EQ(Clean("\xc0\xaf"), "??") << "overlong";
  EXPECT_EQ(Clean("\xe0\x9f\xbf"), "???") << "overlong";
  EXPECT_EQ(Clean("\xf0\x8f\xbf\xbf"), "????") << "overlong";
  EXPECT_EQ(Clean("\xed\xa0\x80"), "???") << "a surrogate";
  EXPECT_EQ(Clean("\xf4\x90\x80\x80"), "????") << "past U+10FFFF";
  EXPECT_EQ(Clean("\xff\xfe"), "??");
  EXPECT_EQ(Clean("a\xe2\x82"), "a??") << "cut off";
  EXPECT_EQ(Clean("\xe2\x82z"), "??z");
}

TEST(SharedBytes, CutsAndFillsTheField) {
  char field[8];
  memset(field, 'x', sizeof(field));
  CopyToShared(field, "ab");
  EXPECT_EQ(std::string(field, sizeof(field)), std::string("ab\0\0\0\0\0\0", 8));
  CopyToShared(field, "0123456789");
  EXPECT_EQ(std::string(field, sizeof(field)), std::string("0123456\0", 8));
  EXPECT_EQ(CopyFromShared(field), "0123456");
}

TEST(SharedBytes, ReadsNoFurtherThanTheField) {
  const char field[4] = {'a', 'b', 'c', 'd'};  // no terminator
  EXPECT_EQ(CopyFromShared(field), "abcd");
  const char cut[2] = {'a', '\xc3'};
  EXPECT_EQ(CopyFromShared(cut), "a?");
}

}  // namespace
}  // namespace nccl_pulse
