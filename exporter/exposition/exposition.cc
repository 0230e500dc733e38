#include "exporter/exposition/exposition.h"

#include <algorithm>
#include <cstddef>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "prometheus/metric_type.h"

namespace nccl_pulse {
namespace {

std::optional<MetricId> FindFamily(std::string_view name) {
  for (int i = 0; i < kMetrics; ++i) {
    if (CatalogueEntry(static_cast<MetricId>(i)).name == name) return static_cast<MetricId>(i);
  }
  return std::nullopt;
}

std::optional<HistogramShape> FindShape(std::string_view name) {
  if (absl::EqualsIgnoreCase(name, "both")) return HistogramShape::kBoth;
  if (absl::EqualsIgnoreCase(name, "classic")) return HistogramShape::kClassic;
  if (absl::EqualsIgnoreCase(name, "native")) return HistogramShape::kNative;
  return std::nullopt;
}

}  // namespace

bool ParseHistograms(std::string_view text, Exposition* exposition) {
  auto shapes = exposition->shapes;
  HistogramShape network = exposition->network_durations;
  for (std::string_view part : absl::StrSplit(text, ',')) {
    const std::size_t equals = part.find('=');
    const std::string_view name =
        equals == part.npos ? "" : absl::StripAsciiWhitespace(part.substr(0, equals));
    const auto shape =
        FindShape(absl::StripAsciiWhitespace(equals == part.npos ? part : part.substr(equals + 1)));
    if (!shape.has_value()) return false;
    if (equals == part.npos) {
      shapes.fill(*shape);
      network = *shape;
      continue;
    }
    if (name == "network") {
      network = *shape;
      continue;
    }
    const auto family = FindFamily(name);
    if (!family.has_value() || CatalogueEntry(*family).type != prometheus::MetricType::Histogram) {
      return false;
    }
    shapes[static_cast<std::size_t>(*family)] = *shape;
  }
  exposition->shapes = shapes;
  exposition->network_durations = network;
  return true;
}

bool ParseDroppedFamilies(std::string_view text, Exposition* exposition, std::string* unknown) {
  unknown->clear();
  for (std::string_view part : absl::StrSplit(text, ',')) {
    const std::string_view name = absl::StripAsciiWhitespace(part);
    if (name.empty()) continue;
    if (const auto family = FindFamily(name); family.has_value()) {
      exposition->dropped.set(static_cast<std::size_t>(*family));
    } else {
      absl::StrAppend(unknown, unknown->empty() ? "" : ", ", name.substr(0, 64));
    }
  }
  return unknown->empty();
}

}  // namespace nccl_pulse
