// The families of one page while it is being filled.
//
// The caller sets the static labels and the scope (server, process, communicator), then adds the
// series of that scope. One rule keeps the page valid: a set of labels is one series. Adding to a
// series that exists adds up counters, histograms and summaries; gauges and info metrics take the
// new value. So whoever fills the page goes from the oldest to the newest.
//
// What the exposition drops is accepted and not shown.
//
// Thread: one.
#ifndef EXPORTER_EXPOSITION_FAMILY_SET_H_
#define EXPORTER_EXPOSITION_FAMILY_SET_H_

#include <array>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "exporter/exposition/catalogue.h"
#include "exporter/exposition/exposition.h"
#include "exporter/exposition/family.h"
#include "exporter/exposition/static_labels.h"
#include "metrics/snapshot.h"
#include "prometheus/client_metric.h"

namespace nccl_pulse {

// Of the labels that the catalogue names, in its order. An empty value is an absent label.
using LabelValues = std::initializer_list<std::string_view>;

class FamilySet {
 public:
  // `scopes`: how many there will be, about; a family has a series or more of each.
  FamilySet(const StaticLabels& static_labels, const Exposition& exposition, PageFormat format,
            std::size_t scopes)
      : labels_of_all_(static_labels), exposition_(exposition), format_(format), scopes_(scopes) {}

  // The user's labels on the following series: those of all, then `text` as a segment holds it.
  void SetStaticLabels(const std::string& text);
  // The labels of the scope that the following series belong to.
  void SetScope(MetricScope scope, LabelValues values);

  void Counter(MetricId id, LabelValues values, uint64_t value);
  // Absent until there is something to count: for what most processes never see. A rule for which
  // the first event matters has to look for a new series, too.
  void SeenCounter(MetricId id, LabelValues values, uint64_t value);
  void SecondsCounter(MetricId id, LabelValues values, uint64_t ns);
  void RealCounter(MetricId id, LabelValues values, double seconds);

  void Gauge(MetricId id, LabelValues values, double value);
  // A gauge that is there, and 1, while something is true of the newest with these labels.
  void Flag(MetricId id, bool value);
  // A gauge that is 1 and says what it says in its labels: one per scope, the newest.
  void Info(MetricId id, LabelValues values);

  void Histogram(MetricId id, LabelValues values, const HistogramSnapshot& value);
  // The operation's duration with timing="network", whose classic buckets have a setting of their
  // own.
  void NetworkDuration(LabelValues values, const HistogramSnapshot& value);
  void Summary(MetricId id, LabelValues values, uint64_t count, double sum);

  // In the catalogue's order, without those that have no series.
  std::vector<Family> Take() &&;

 private:
  struct Collected {
    std::vector<prometheus::ClientMetric> metrics;
    std::vector<HistogramSnapshot> native;
    absl::flat_hash_map<std::string, std::size_t> index_of_key;
  };

  void AddHistogramTo(MetricId id, LabelValues values, const HistogramSnapshot& value,
                      bool has_classic);
  void SetLabels(MetricId id, LabelValues values, prometheus::ClientMetric* metric);
  prometheus::ClientMetric* FindKey(MetricId id);
  prometheus::ClientMetric* Find(MetricId id, LabelValues values);

  const StaticLabels labels_of_all_;
  std::vector<prometheus::ClientMetric::Label> static_labels_;
  MetricScope scope_ = MetricScope::kServer;
  std::vector<prometheus::ClientMetric::Label> scope_labels_;
  std::string scope_key_;  // four bytes
  absl::flat_hash_map<std::string, std::size_t> numbers_of_scopes_;
  std::string key_;  // reused, so that a key costs no allocation
  const Exposition exposition_;
  const PageFormat format_;
  const std::size_t scopes_;
  prometheus::ClientMetric dropped_;  // what is not shown is written here
  std::array<Collected, kMetrics> families_;
  std::bitset<kMetrics> flags_;
};

}  // namespace nccl_pulse

#endif  // EXPORTER_EXPOSITION_FAMILY_SET_H_
