#include "exporter/base/gzip.h"

#include <random>
#include <string>

#include "gtest/gtest.h"
#include "tests/exporter/gunzip.h"

namespace nccl_pulse {
namespace {

TEST(Gzip, RoundTrip) {
  std::mt19937_64 random(20260101);
  std::string noise(1'000'000, '\0');
  for (char& c : noise) c = static_cast<char>(random());
  for (const std::string& text : {std::string(), std::string("a"), std::string(5'000'000, 'a'),
                                  noise, noise.substr(0, 1000)}) {
    const auto packed = Gzip(text);
    ASSERT_TRUE(packed.has_value());
    EXPECT_EQ(packed->substr(0, 2), "\x1f\x8b");
    EXPECT_EQ(Gunzip(*packed), text);
  }
  EXPECT_LT(Gzip(std::string(5'000'000, 'a'))->size(), 50'000u);
}

TEST(Gzip, UnpacksNoMoreThanItMay) {
  for (const std::size_t size : {0, 1, 65536, 65537, 5'000'000}) {
    const std::string text(size, 'a');
    const std::string packed = *Gzip(text);
    EXPECT_EQ(GunzipAtMost(packed, size), text);
    if (size > 0) {
      EXPECT_EQ(GunzipAtMost(packed, size - 1), std::nullopt);
    }
    EXPECT_EQ(GunzipAtMost(packed.substr(0, packed.size() - 1), size), std::nullopt);
    EXPECT_EQ(GunzipAtMost(packed + "x", size), std::nullopt);
  }
  EXPECT_EQ(GunzipAtMost("", 10), std::nullopt);
}

}  // namespace
}  // namespace nccl_pulse
