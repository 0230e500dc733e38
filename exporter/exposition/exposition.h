// What of a page is a matter of taste: its format, which a scraper asks for; how histograms are
// shown, and which families are left out, which are settings of the process that serves.
//
// Thread: any; plain data and pure functions.
#ifndef EXPORTER_EXPOSITION_EXPOSITION_H_
#define EXPORTER_EXPOSITION_EXPOSITION_H_

#include <array>
#include <bitset>
#include <cstddef>
#include <string>
#include <string_view>

#include "exporter/exposition/catalogue.h"

namespace nccl_pulse {

enum class PageFormat { kText, kOpenMetrics, kProtobuf };
inline constexpr int kPageFormats = 3;

// Only the protobuf format can carry native histograms. A page of another format shows a histogram
// that is native alone with its sum and count.
enum class HistogramShape { kBoth, kClassic, kNative };

// What ParseHistograms starts from. A small share of the operations has a duration by network
// steps: its mean is worth its series, its classic buckets, 17 more of each, are for those who ask.
inline constexpr char kDefaultHistograms[] = "both,network=native";

struct Exposition {
  std::array<HistogramShape, kMetrics> shapes{};  // matters for histograms
  // Of nccl_operation_duration_seconds{timing="network"}: whether it has classic buckets. It is
  // native where its family is.
  HistogramShape network_durations = HistogramShape::kNative;
  std::bitset<kMetrics> dropped;

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

// "both", "classic" or "native", for all histograms without exception; "family=..." for one of
// them, "network=..." for durations by network steps; several, separated by commas, from left to
// right. False when it is none of that; the exposition is then unchanged.
bool ParseHistograms(std::string_view text, Exposition* exposition);

// Names of families, separated by commas, as docs/metrics.md has them. The known ones are dropped;
// false when there are others, which `unknown` names.
bool ParseDroppedFamilies(std::string_view text, Exposition* exposition, std::string* unknown);

}  // namespace nccl_pulse

#endif  // EXPORTER_EXPOSITION_EXPOSITION_H_
