// Lists every metric that NCCL Pulse exports, as data.
//
// Pages take names, types, help texts and label names from here, and docs/metrics.md is printed
// from here (//exporter/exposition:catalogue_markdown), so that they cannot differ. To add a
// metric: add an id in metric_id.h, an entry in catalogue.cc, and the line in
// communicator_series.cc that fills it.
//
// Thread: any; constant data without constructors or destructors.
#ifndef EXPORTER_EXPOSITION_CATALOGUE_H_
#define EXPORTER_EXPOSITION_CATALOGUE_H_

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

#include "exporter/exposition/metric_id.h"
#include "prometheus/metric_type.h"

namespace nccl_pulse {

// Owner of a series. Decides the series' first labels.
enum class MetricScope {
  kCommunicator,  // comm, rank
  kProcess,       // pid, global_rank (when the launcher gave one)
  kServer,        // none
};

// A fixed-size list, so that the catalogue can be constexpr.
struct LabelNames {
  static constexpr std::size_t kMax = 13;
  std::array<std::string_view, kMax> names{};
  std::size_t size = 0;

  constexpr LabelNames() = default;
  template <typename... Names>
  constexpr explicit LabelNames(Names... list) : names{list...}, size(sizeof...(list)) {}
  constexpr const std::string_view* begin() const { return names.data(); }
  constexpr const std::string_view* end() const { return names.data() + size; }
};

struct MetricEntry {
  MetricId id;
  std::string_view name;
  prometheus::MetricType type;
  std::string_view unit;  // a Prometheus base unit; "" for plain numbers
  MetricScope scope;
  LabelNames labels;  // labels after the scope's
  std::string_view help;
};

// Returns the type's name in the text format.
std::string_view MetricTypeName(prometheus::MetricType type);

const MetricEntry& CatalogueEntry(MetricId id);

LabelNames ScopeLabels(MetricScope scope);

// True for labels of the catalogue's metrics, and for those that Prometheus reserves in histograms
// and summaries. Static labels cannot have such a name.
bool IsReservedLabel(std::string_view name);

// Returns docs/metrics.md.
std::string CatalogueMarkdown();

}  // namespace nccl_pulse

#endif  // EXPORTER_EXPOSITION_CATALOGUE_H_
