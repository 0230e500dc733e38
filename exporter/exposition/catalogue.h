// The metric catalogue: every metric that NCCL Pulse exports, as data, in this one place.
//
// The code that fills a page takes names, types, help texts and label names from here, and
// docs/metrics.md is printed from here (//exporter/exposition:catalogue_markdown), so that none of
// the three can say something else. To add a metric: an id in metric_id.h, an entry in
// catalogue.cc, and the line in communicator_series.cc that fills it.
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

// What one series of a metric belongs to. It decides the labels that come first.
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
  LabelNames labels;  // those after the scope's
  std::string_view help;
};

// As the text format has it.
std::string_view MetricTypeName(prometheus::MetricType type);

const MetricEntry& CatalogueEntry(MetricId id);

LabelNames ScopeLabels(MetricScope scope);

// True for the labels that a metric of the catalogue may have, and for those that Prometheus
// reserves in histograms and summaries. A user's static label cannot have such a name.
bool IsReservedLabel(std::string_view name);

// The whole of docs/metrics.md.
std::string CatalogueMarkdown();

}  // namespace nccl_pulse

#endif  // EXPORTER_EXPOSITION_CATALOGUE_H_
