#include "metrics/histogram_geometry.h"

#include <cmath>
#include <limits>

namespace nccl_pulse {
namespace {

using histogram_internal::kSliceBits;
using histogram_internal::kSlices;
using histogram_internal::Tables;

// Returns the boundary 2^(boundary_index / 8) s, to the precision of an 80 or 128 bit long double.
// Boundaries are 954 ns to 1.024e12 ns, so the 64-bit mantissa gives whole nanoseconds with 20 bits
// to spare.
long double BoundaryNs(int boundary_index) {
  return exp2l(static_cast<long double>(boundary_index) / kBucketsPerOctave) * 1e9L;
}

Tables MakeTables() {
  Tables tables{};
  for (int cell = 0; cell < kOverflowCell; ++cell) {
    tables.upper_bound_ns[cell] =
        static_cast<uint64_t>(floorl(BoundaryNs(NativeBucketIndex(cell))));
  }
  tables.upper_bound_ns[kOverflowCell] = std::numeric_limits<uint64_t>::max();
  int cell = 0;
  for (int slice = 0; slice < kSlices; ++slice) {
    const int log2 = slice >> kSliceBits;
    const uint64_t mantissa = slice & ((1 << kSliceBits) - 1);
    uint64_t smallest = uint64_t{1} << log2;
    smallest +=
        log2 >= kSliceBits ? mantissa << (log2 - kSliceBits) : mantissa >> (kSliceBits - log2);
    while (tables.upper_bound_ns[cell] < smallest) ++cell;
    tables.first_cell[slice] = static_cast<uint8_t>(cell);
  }
  tables.first_cell[kSlices] = kOverflowCell;
  return tables;
}

}  // namespace

// Filled when the library is loaded, before any callback. Trivially destructible, so it outlives
// threads that exit late.
const Tables histogram_internal::kTables = MakeTables();

double CellUpperBoundSeconds(int cell) {
  if (cell >= kOverflowCell) return std::numeric_limits<double>::infinity();
  return std::exp2(static_cast<double>(NativeBucketIndex(cell)) / kBucketsPerOctave);
}

}  // namespace nccl_pulse
