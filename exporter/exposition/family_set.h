// Collects the families of one page.
//
// The caller sets static labels and scope (server, process, communicator), then adds the scope's
// series. Adding to a series that exists adds up counters, histograms and summaries; gauges and
// info metrics take the new value. So the caller must add sources from oldest to newest.
//
// Dropped families are accepted and not shown.
//
// Not thread-safe.
#ifndef EXPORTER_EXPOSITION_FAMILY_SET_H_
#define EXPORTER_EXPOSITION_FAMILY_SET_H_

#include <array>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "exporter/exposition/catalogue.h"
#include "exporter/exposition/exposition.h"
#include "exporter/exposition/family.h"
#include "exporter/exposition/static_labels.h"
#include "metrics/snapshot.h"
#include "prometheus/client_metric.h"

namespace nccl_pulse {

// Values of the catalogue's labels, in its order. An empty value means no label.
using LabelValues = std::initializer_list<std::string_view>;

class FamilySet {
 public:
  // `static_labels`: of all series. `scopes`: estimated number of SetScope calls, to reserve
  // memory.
  FamilySet(const StaticLabels& static_labels, const Exposition& exposition, PageFormat format,
            std::size_t scopes)
      : labels_of_all_(static_labels), exposition_(exposition), format_(format), scopes_(scopes) {}

  // Sets the static labels of the following series: those of all series, then the labels in `text`
  // ("name=value,name=value"), which a process has in its segment.
  void SetStaticLabels(const std::string& text);
  // Sets the scope of the following series.
  void SetScope(MetricScope scope, LabelValues values);

  void Counter(MetricId id, LabelValues values, uint64_t value);
  // Adds a counter of rare events, absent while it is 0. Alert rules on the first event must also
  // detect a new series.
  void SeenCounter(MetricId id, LabelValues values, uint64_t value);
  void SecondsCounter(MetricId id, LabelValues values, uint64_t ns);
  void RealCounter(MetricId id, LabelValues values, double seconds);

  void Gauge(MetricId id, LabelValues values, double value);
  // Adds a gauge that is 1 if the newest `value` is true, else absent.
  void Flag(MetricId id, bool value);
  // Adds a gauge of 1 with its information in labels. A scope shows only the newest.
  void Info(MetricId id, LabelValues values);

  void Histogram(MetricId id, LabelValues values, const HistogramSnapshot& value);
  // Adds nccl_operation_duration_seconds{timing="network"}, for which `network_durations` decides
  // on classic buckets.
  void NetworkDuration(LabelValues values, const HistogramSnapshot& value);
  void Summary(MetricId id, LabelValues values, uint64_t count, double sum);

  // Returns the families in the catalogue's order, without those that have no series.
  std::vector<Family> Take() &&;

 private:
  struct Collected {
    std::vector<prometheus::ClientMetric> metrics;
    std::vector<HistogramSnapshot> native;
    std::unordered_map<std::string, std::size_t> index_of_key;
  };

  void AddHistogramTo(MetricId id, LabelValues values, const HistogramSnapshot& value,
                      bool has_classic);
  void SetLabels(MetricId id, LabelValues values, prometheus::ClientMetric* metric);
  prometheus::ClientMetric* FindKey(MetricId id);
  prometheus::ClientMetric* Find(MetricId id, LabelValues values);

  const StaticLabels labels_of_all_;  // static labels of all series
  std::vector<prometheus::ClientMetric::Label> static_labels_;
  MetricScope scope_ = MetricScope::kServer;
  std::vector<prometheus::ClientMetric::Label> scope_labels_;
  std::string scope_key_;  // the scope's number: four bytes, so most keys need no allocation
  std::unordered_map<std::string, std::size_t> numbers_of_scopes_;  // by label values
  std::string key_;                                                 // reused, to save allocations
  const Exposition exposition_;
  const PageFormat format_;
  const std::size_t scopes_;
  prometheus::ClientMetric dropped_;  // receives dropped series
  std::array<Collected, kMetrics> families_;
  std::bitset<kMetrics> flags_;
};

}  // namespace nccl_pulse

#endif  // EXPORTER_EXPOSITION_FAMILY_SET_H_
