// Limits on JSON from outside.
#include "exporter/base/json_text.h"

#include <string>

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace nccl_pulse {
namespace {

std::string Nested(int depth) {
  std::string text;
  for (int i = 0; i < depth; ++i) text += i % 2 == 0 ? "[" : "{\"a\":";
  text += "1";
  for (int i = depth; i-- > 0;) text += i % 2 == 0 ? "]" : "}";
  return text;
}

TEST(ParseJson, RefusesWhatNestsTooDeep) {
  EXPECT_FALSE(ParseJson(Nested(kMostJsonDepth)).is_discarded());
  EXPECT_TRUE(ParseJson(Nested(kMostJsonDepth + 1)).is_discarded());
  EXPECT_TRUE(ParseJson(std::string(3 << 20, '[')).is_discarded());
}

TEST(ParseJson, TakesBracketsInTextsAsText) {
  const std::string text = "\"" + std::string(1000, '[') + "\\\"" + std::string(1000, '{') + "\"";
  EXPECT_TRUE(ParseJson(text).is_string());
}

TEST(ParseJson, RefusesWhatTakesTooMuchMemory) {
  constexpr std::size_t kMost = 1 << 20;
  for (const char* each : {"{}", "[0]", "0", "\"\"", "{\"a\":0}"}) {
    std::string text = "[";
    while (text.size() < kMost / 4) text.append(each).append(",");
    text += "0]";
    EXPECT_TRUE(ParseJson(text, kMost).is_discarded()) << each;
    EXPECT_FALSE(ParseJson(text).is_discarded()) << each;
  }
}

}  // namespace
}  // namespace nccl_pulse
