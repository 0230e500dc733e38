#include "metrics/size_class.h"

#include <cstdint>
#include <limits>
#include <string>

#include "gtest/gtest.h"

namespace nccl_pulse {
namespace {

TEST(SizeClass, EveryBoundary) {
  uint64_t bound = 4096;
  for (int size_class = 0; size_class < kSizeClasses - 1; ++size_class) {
    EXPECT_EQ(SizeClassOf(bound - 1), size_class);
    EXPECT_EQ(SizeClassOf(bound), size_class) << "bounds are inclusive";
    EXPECT_EQ(SizeClassOf(bound + 1), size_class + 1);
    bound *= 4;
  }
  EXPECT_EQ(bound, uint64_t{4} << 30) << "the last bound was 1 GiB";
}

TEST(SizeClass, EdgesOfTheRange) {
  EXPECT_EQ(SizeClassOf(0), 0);
  EXPECT_EQ(SizeClassOf(1), 0);
  EXPECT_EQ(SizeClassOf(uint64_t{1} << 40), 10);
  EXPECT_EQ(SizeClassOf((uint64_t{1} << 63) + 1), 10);
  EXPECT_EQ(SizeClassOf(std::numeric_limits<uint64_t>::max()), 10);
}

TEST(SizeClass, NamesSayTheBound) {
  const char* const units[] = {"KiB", "MiB", "GiB"};
  uint64_t kib = 4;
  for (int size_class = 0; size_class < kSizeClasses - 1; ++size_class) {
    int unit = 0;
    uint64_t number = kib;
    for (; number >= 1024; number /= 1024) ++unit;
    EXPECT_EQ(SizeClassName(size_class), "le_" + std::to_string(number) + units[unit]);
    kib *= 4;
  }
  EXPECT_EQ(SizeClassName(10), "gt_1GiB");
}

TEST(SizeClass, NamesOfWhatIsNone) {
  EXPECT_EQ(SizeClassName(kOverflowSizeClass), "overflow");
  for (int none : {-1, 11, 14, 16, 255}) EXPECT_EQ(SizeClassName(none), "invalid");
}

}  // namespace
}  // namespace nccl_pulse
