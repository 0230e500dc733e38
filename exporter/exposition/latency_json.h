// Latency histograms as JSON, of one rank and of all ranks of a communicator.
//
// Thread: any, no state.
#ifndef EXPORTER_EXPOSITION_LATENCY_JSON_H_
#define EXPORTER_EXPOSITION_LATENCY_JSON_H_

#include <cstdint>
#include <vector>

#include "metrics/snapshot.h"
#include "nlohmann/json_fwd.hpp"

namespace nccl_pulse {

// In seconds, of a histogram that is not empty; 0 <= quantile <= 1. Between the bounds of a bucket
// the logarithm is interpolated, as Prometheus does for native histograms.
double HistogramQuantile(const HistogramSnapshot& histogram, double quantile);

// Measure, source, count, mean, quantiles, bus bandwidth.
nlohmann::ordered_json LatencyJson(LatencyKind kind, const HistogramSnapshot& histogram,
                                   uint64_t bus_bytes);

// The buckets that hold something as [upper bound in seconds, count], four an octave (19 % wide):
// two of the histogram's own in one. The bounds are powers of 2^(1/4), to four digits; null past
// the last. At most 122.
nlohmann::ordered_json BucketsJson(const HistogramSnapshot& histogram);

// A communicator's operations by name and size, summed over the ranks given: calls, bytes, and each
// kind of latency with its buckets. Cost: that of the ranks' own latencies.
nlohmann::ordered_json OperationsOfAllRanks(const std::vector<const CommunicatorSnapshot*>& ranks);

}  // namespace nccl_pulse

#endif  // EXPORTER_EXPOSITION_LATENCY_JSON_H_
