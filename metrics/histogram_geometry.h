// Buckets of every latency histogram: Prometheus native-histogram schema 3.
//
// A bucket boundary is 2^(i/8) seconds (each bucket about 9 % wide), i an integer:
//
//   cell        holds durations d                        native bucket index
//   0           d <= 2^-20 s (0.95 us)                   the zero bucket (zero_threshold 2^-20)
//   1           2^-20      < d <= 2^(-159/8)             -159
//   k           2^((k-161)/8) < d <= 2^((k-160)/8)       k - 160
//   240         2^(79/8)   < d <= 2^10 s (1024 s)        80
//   241         d > 1024 s                               81 (the only inexact one)
//
// Every eighth boundary is a power of two, so classic buckets at powers of two are an exact subset,
// without interpolation. Only the last cell has no upper end: a native histogram shows it as the
// bucket after the last boundary.
//
// Source: Prometheus' native histogram specification, "Standard (exponential) schemas".
//
// Thread: any; everything here is constant data or pure.
// Cost of CellIndex: two table lookups, one compare.
#ifndef METRICS_HISTOGRAM_GEOMETRY_H_
#define METRICS_HISTOGRAM_GEOMETRY_H_

#include <cstdint>
#include <cstring>

namespace nccl_pulse {

inline constexpr int kHistogramSchema = 3;
inline constexpr int kBucketsPerOctave = 1 << kHistogramSchema;
inline constexpr int kMinExponent = -20;  // zero bucket: d <= 2^-20 s
inline constexpr int kMaxExponent = 10;   // overflow: d > 2^10 s
inline constexpr int kHistogramCells = (kMaxExponent - kMinExponent) * kBucketsPerOctave + 2;
inline constexpr int kZeroCell = 0;
inline constexpr int kOverflowCell = kHistogramCells - 1;
static_assert(kHistogramCells == 242, "the drawing above and the segment's layout say 242 cells");

// Native bucket index of a cell in 1 .. kOverflowCell.
constexpr int NativeBucketIndex(int cell) { return cell + kMinExponent * kBucketsPerOctave; }

// Inclusive upper bound of a cell in seconds (infinity for the overflow cell).
double CellUpperBoundSeconds(int cell);

namespace histogram_internal {

// A duration's leading bit and the four bits after it select a slice of at most 6.25 %. A bucket is
// wider (9 %), so a slice holds at most one boundary: one table entry and one compare decide.
inline constexpr int kSliceBits = 4;
inline constexpr int kSlices = 64 << kSliceBits;  // 64 leading bits; Tables has one more

struct Tables {
  uint64_t upper_bound_ns[kHistogramCells];  // largest whole nanosecond in the cell
  uint8_t first_cell[kSlices + 1];           // cell of the slice's smallest duration
};
extern const Tables kTables;

}  // namespace histogram_internal

// Returns the cell of a duration. Exact: compares with the true boundary, not a rounded logarithm.
inline int CellIndex(uint64_t duration_ns) {
  // A double has the position of the leading bit next to the bits after it. Converting a signed
  // integer is cheaper than an unsigned one, and half the duration fits it. Durations above 208
  // days are rounded, at most up to 2^63: both are far beyond the last boundary.
  const auto half = static_cast<double>(static_cast<int64_t>(duration_ns >> 1 | 1));
  uint64_t bits;
  memcpy(&bits, &half, sizeof(bits));
  constexpr int kShift = 52 - histogram_internal::kSliceBits;
  constexpr uint64_t kExponentOfHalf = 1022;
  const int cell =
      histogram_internal::kTables
          .first_cell[(bits >> kShift) - (kExponentOfHalf << histogram_internal::kSliceBits)];
  return cell + (duration_ns > histogram_internal::kTables.upper_bound_ns[cell] ? 1 : 0);
}

}  // namespace nccl_pulse

#endif  // METRICS_HISTOGRAM_GEOMETRY_H_
