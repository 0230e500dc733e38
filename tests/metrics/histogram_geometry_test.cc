#include "metrics/histogram_geometry.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "gtest/gtest.h"

namespace nccl_pulse {
namespace {

// A whole number of any size, for the comparison of eighth powers: a 40 bit duration to the eighth
// fits nothing smaller.
class WholeNumber {
 public:
  explicit WholeNumber(uint64_t value)
      : digits_{static_cast<uint32_t>(value), static_cast<uint32_t>(value >> 32)} {}

  WholeNumber& operator*=(uint64_t factor) {
    unsigned __int128 carry = 0;
    for (uint32_t& digit : digits_) {
      carry += static_cast<unsigned __int128>(digit) * factor;
      digit = static_cast<uint32_t>(carry);
      carry >>= 32;
    }
    for (; carry != 0; carry >>= 32) digits_.push_back(static_cast<uint32_t>(carry));
    return *this;
  }

  WholeNumber ToThe(int exponent, uint64_t base) const {
    WholeNumber result = *this;
    for (int i = 0; i < exponent; ++i) result *= base;
    return result;
  }

  bool operator<=(const WholeNumber& other) const {
    for (size_t i = std::max(digits_.size(), other.digits_.size()); i-- > 0;) {
      const uint32_t mine = i < digits_.size() ? digits_[i] : 0;
      const uint32_t others = i < other.digits_.size() ? other.digits_[i] : 0;
      if (mine != others) return mine < others;
    }
    return true;
  }

 private:
  std::vector<uint32_t> digits_;
};

// ns <= 2^(index/8) seconds, that is: ns^8 * 2^160 <= 2^(160 + index) * 10^72. Whole numbers only.
bool IsWithinBoundary(uint64_t ns, int index) {
  const WholeNumber left = WholeNumber(1).ToThe(8, ns).ToThe(160, 2);
  const WholeNumber right = WholeNumber(1).ToThe(160 + index, 2).ToThe(72, 10);
  return left <= right;
}

// The largest whole nanosecond within the boundary, by bisection.
uint64_t LargestWithinBoundary(int index) {
  uint64_t within = 0;
  uint64_t beyond = uint64_t{1} << 41;
  while (beyond - within > 1) {
    const uint64_t middle = within + (beyond - within) / 2;
    (IsWithinBoundary(middle, index) ? within : beyond) = middle;
  }
  return within;
}

TEST(HistogramGeometry, EveryBoundaryIsExact) {
  for (int cell = 0; cell < kOverflowCell; ++cell) {
    const uint64_t floor_ns = LargestWithinBoundary(cell - 160);
    EXPECT_EQ(CellIndex(floor_ns), cell) << floor_ns;
    EXPECT_EQ(CellIndex(floor_ns + 1), cell + 1) << floor_ns + 1;
    EXPECT_EQ(CellIndex(floor_ns - 1), cell) << "no cell is a single nanosecond wide";
  }
}

TEST(HistogramGeometry, EdgesOfTheRange) {
  EXPECT_EQ(CellIndex(0), kZeroCell);
  EXPECT_EQ(CellIndex(1), kZeroCell);
  EXPECT_EQ(CellIndex(2), kZeroCell);
  EXPECT_EQ(CellIndex(953), kZeroCell);  // 2^-20 s = 953.67 ns
  EXPECT_EQ(CellIndex(954), 1);
  EXPECT_EQ(CellIndex(1000000000), 160);  // 1 s, a boundary that is a whole number: inclusive
  EXPECT_EQ(CellIndex(1000000001), 161);
  EXPECT_EQ(CellIndex(1024000000000), 240);
  EXPECT_EQ(CellIndex(1024000000001), kOverflowCell);
  EXPECT_EQ(CellIndex(std::numeric_limits<uint64_t>::max()), kOverflowCell);
}

TEST(HistogramGeometry, IsMonotone) {
  int previous = 0;
  // About 2000 durations an octave, on both sides of every power of two.
  for (uint64_t ns = 1; ns < uint64_t{1} << 63; ns += (ns >> 11) + 1) {
    const int cell = CellIndex(ns);
    ASSERT_GE(cell, previous) << ns;
    ASSERT_LE(cell, previous + 1) << ns << ": steps of 0.05 % cannot pass over a cell";
    previous = cell;
  }
  for (int log2 = 1; log2 < 64; ++log2) {
    const uint64_t power = uint64_t{1} << log2;
    ASSERT_LE(CellIndex(power - 1), CellIndex(power));
    ASSERT_LE(CellIndex(power), CellIndex(power + 1));
  }
  EXPECT_EQ(previous, kOverflowCell);
}

TEST(HistogramGeometry, NativeBucketIndices) {
  EXPECT_EQ(NativeBucketIndex(1), -159);
  EXPECT_EQ(NativeBucketIndex(160), 0);  // (2^(-1/8), 1]: the bucket of 1 s has index 0
  EXPECT_EQ(NativeBucketIndex(240), 80);
  EXPECT_EQ(NativeBucketIndex(kOverflowCell), 81);
  for (int cell = 1; cell <= kOverflowCell; ++cell) {
    EXPECT_EQ(NativeBucketIndex(cell), NativeBucketIndex(cell - 1) + 1);
  }
}

TEST(HistogramGeometry, UpperBoundsInSeconds) {
  for (int cell = 0; cell < kOverflowCell; ++cell) {
    const double bound = CellUpperBoundSeconds(cell);
    // One unit in the last place: a boundary is irrational but for every eighth.
    EXPECT_DOUBLE_EQ(bound, static_cast<double>(powl(2.0L, (cell - 160) / 8.0L))) << cell;
    // Every eighth is a power of two, exactly: the classic buckets.
    if (cell % kBucketsPerOctave == 0) {
      EXPECT_EQ(bound, std::ldexp(1.0, cell / kBucketsPerOctave + kMinExponent)) << cell;
    }
    // And the bound is that of the cell in which CellIndex puts durations.
    const auto floor_ns = static_cast<uint64_t>(bound * 1e9 * (1 - 1e-12));
    EXPECT_EQ(CellIndex(floor_ns), cell);
  }
  EXPECT_TRUE(std::isinf(CellUpperBoundSeconds(kOverflowCell)));
}

}  // namespace
}  // namespace nccl_pulse
