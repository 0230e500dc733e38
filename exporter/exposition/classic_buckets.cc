#include "exporter/exposition/classic_buckets.h"

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "exporter/base/time.h"
#include "metrics/histogram_geometry.h"

namespace nccl_pulse {
namespace {

constexpr std::size_t kClassicBuckets = kClassicExponents.size();
static_assert(kClassicExponents.front() >= kMinExponent && kClassicExponents.back() <= kMaxExponent,
              "a classic bucket ends where a cell does");

}  // namespace

void AddHistogram(const HistogramSnapshot& from, bool classic,
                  prometheus::ClientMetric::Histogram* to) {
  to->sample_sum += Seconds(from.sum_ns);
  if (!classic) {
    to->sample_count += from.Count();
    return;
  }
  to->bucket.resize(kClassicBuckets);
  uint64_t cumulative = 0;
  int cell = 0;  // first cell not counted yet
  for (std::size_t i = 0; i < kClassicBuckets; ++i) {
    // The cell whose upper bound equals the bucket's.
    const int last_cell = (kClassicExponents[i] - kMinExponent) * kBucketsPerOctave;
    while (cell <= last_cell) cumulative += from.cells[cell++];
    to->bucket[i].upper_bound = std::ldexp(1.0, kClassicExponents[i]);
    to->bucket[i].cumulative_count += cumulative;
  }
  while (cell < kHistogramCells) cumulative += from.cells[cell++];
  to->sample_count += cumulative;
}

}  // namespace nccl_pulse
