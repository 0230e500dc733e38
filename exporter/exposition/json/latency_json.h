// Writes latency histograms as JSON, for one rank or all ranks of a communicator.
//
// Thread: any, no state.
#ifndef EXPORTER_EXPOSITION_JSON_LATENCY_JSON_H_
#define EXPORTER_EXPOSITION_JSON_LATENCY_JSON_H_

#include <cstdint>
#include <vector>

#include "metrics/snapshot.h"
#include "nlohmann/json_fwd.hpp"

namespace nccl_pulse {

// Returns a quantile in seconds of a non-empty histogram; 0 <= quantile <= 1. Interpolates
// logarithmically within a bucket, as Prometheus does for native histograms.
double HistogramQuantile(const HistogramSnapshot& histogram, double quantile);

// Returns measure, source, count, mean, quantiles and bus bandwidth. `bus_bytes`: bytes that the
// timed operations moved over the bus, as nccl-tests count them; 0: not known.
nlohmann::ordered_json LatencyJson(LatencyKind kind, const HistogramSnapshot& histogram,
                                   uint64_t bus_bytes);

// Returns the non-empty buckets as [upper bound in seconds, count]. Each merges two cells of the
// histogram. Its upper bound is 19 % above the previous one, so four buckets double it. Bounds are
// rounded to four digits; the last bucket's, for longer durations, is null. At most 122 buckets.
nlohmann::ordered_json BucketsJson(const HistogramSnapshot& histogram);

// Returns a communicator's operations by name and size, summed over `ranks`: calls, bytes, and each
// kind of latency with its buckets.
nlohmann::ordered_json OperationsOfAllRanks(const std::vector<const CommunicatorSnapshot*>& ranks);

}  // namespace nccl_pulse

#endif  // EXPORTER_EXPOSITION_JSON_LATENCY_JSON_H_
