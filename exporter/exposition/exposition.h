// Options of a metrics page. The scraper selects the format; the serving process' settings select
// the shape of histograms and the families to drop.
//
// Thread: any; plain data and pure functions.
#ifndef EXPORTER_EXPOSITION_EXPOSITION_H_
#define EXPORTER_EXPOSITION_EXPOSITION_H_

#include <array>
#include <bitset>
#include <cstddef>
#include <string>
#include <string_view>

#include "exporter/exposition/metric_id.h"

namespace nccl_pulse {

enum class PageFormat { kText, kOpenMetrics, kProtobuf };
inline constexpr int kPageFormats = 3;

// Only the protobuf format carries native histograms. Other formats show a native-only histogram as
// its sum and count.
enum class HistogramShape { kBoth, kClassic, kNative };

// Default for ParseHistograms. Few operations have a duration by network steps, so by default these
// have a sum and a count, without 17 classic buckets each.
inline constexpr char kDefaultHistograms[] = "both,network=native";

struct Exposition {
  std::array<HistogramShape, kMetrics> shapes{};  // histograms only
  // Whether nccl_operation_duration_seconds{timing="network"} has classic buckets. Whether it has
  // native buckets depends on its family.
  HistogramShape network_durations = HistogramShape::kNative;
  std::bitset<kMetrics> dropped;  // families that the page leaves out

  bool IsDropped(MetricId id) const { return dropped[static_cast<std::size_t>(id)]; }
  bool HasClassic(MetricId id) const { return shape(id) != HistogramShape::kNative; }
  bool NetworkDurationsHaveClassic() const {
    return HasClassic(MetricId::kOperationDuration) && network_durations != HistogramShape::kNative;
  }
  bool HasNative(MetricId id, PageFormat format) const {
    return format == PageFormat::kProtobuf && shape(id) != HistogramShape::kClassic;
  }

 private:
  HistogramShape shape(MetricId id) const { return shapes[static_cast<std::size_t>(id)]; }
};

// Parses "both", "classic" or "native" for all histograms, "family=..." for one family, and
// "network=..." for durations by network steps. Several, separated by commas, apply from left to
// right. Otherwise returns false and changes nothing.
bool ParseHistograms(std::string_view text, Exposition* exposition);

// Parses family names of docs/metrics.md, separated by commas, and drops the known ones. If some
// are unknown, returns false and sets `unknown` to their names.
bool ParseDroppedFamilies(std::string_view text, Exposition* exposition, std::string* unknown);

}  // namespace nccl_pulse

#endif  // EXPORTER_EXPOSITION_EXPOSITION_H_
