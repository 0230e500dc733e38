#include "exporter/exposition/family_set.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "exporter/base/time.h"
#include "exporter/exposition/classic_buckets.h"

namespace nccl_pulse {
namespace {

using prometheus::ClientMetric;

void RemoveZeros(std::vector<ClientMetric>* metrics) {
  const auto is_zero = [](const ClientMetric& metric) { return metric.gauge.value == 0; };
  metrics->erase(std::remove_if(metrics->begin(), metrics->end(), is_zero), metrics->end());
}

// Appends values, separated by 0xff, which UTF-8 lacks: no two lists have the same key.
void AppendKey(LabelValues values, std::string* key) {
  for (std::string_view value : values) key->append(value).push_back('\xff');
}

void AppendLabels(const LabelNames& names, LabelValues values,
                  std::vector<ClientMetric::Label>* labels) {
  assert(values.size() == names.size);
  const std::string_view* name = names.begin();
  for (std::string_view value : values) {
    // Prometheus treats an empty label as none.
    if (!value.empty()) labels->push_back({std::string(*name), std::string(value)});
    ++name;
  }
}

}  // namespace

void FamilySet::SetStaticLabels(const std::string& text) {
  StaticLabels labels = labels_of_all_;
  SplitLabels(text, &labels);
  static_labels_ = UsableLabels(labels);
}

void FamilySet::SetScope(MetricScope scope, LabelValues values) {
  scope_ = scope;
  scope_labels_.clear();
  AppendLabels(ScopeLabels(scope), values, &scope_labels_);
  key_.clear();
  AppendKey(values, &key_);
  // Keys contain the scope's number. So most are short enough to need no allocation.
  const auto number = static_cast<uint32_t>(
      numbers_of_scopes_.try_emplace(key_, numbers_of_scopes_.size()).first->second);
  scope_key_.assign(reinterpret_cast<const char*>(&number), sizeof(number));
}

void FamilySet::Counter(MetricId id, LabelValues values, uint64_t value) {
  Find(id, values)->counter.value += static_cast<double>(value);
}

void FamilySet::SeenCounter(MetricId id, LabelValues values, uint64_t value) {
  if (value != 0) Counter(id, values, value);
}

void FamilySet::SecondsCounter(MetricId id, LabelValues values, uint64_t ns) {
  Find(id, values)->counter.value += Seconds(ns);
}

void FamilySet::RealCounter(MetricId id, LabelValues values, double seconds) {
  Find(id, values)->counter.value += seconds;
}

void FamilySet::Gauge(MetricId id, LabelValues values, double value) {
  Find(id, values)->gauge.value = value;
}

void FamilySet::Flag(MetricId id, bool value) {
  flags_.set(static_cast<std::size_t>(id));
  Gauge(id, {}, value ? 1 : 0);
}

void FamilySet::Info(MetricId id, LabelValues values) {
  key_ = scope_key_;
  ClientMetric* metric = FindKey(id);
  SetLabels(id, values, metric);
  metric->gauge.value = 1;
}

void FamilySet::Histogram(MetricId id, LabelValues values, const HistogramSnapshot& value) {
  AddHistogramTo(id, values, value, exposition_.HasClassic(id));
}

void FamilySet::NetworkDuration(LabelValues values, const HistogramSnapshot& value) {
  AddHistogramTo(MetricId::kOperationDuration, values, value,
                 exposition_.NetworkDurationsHaveClassic());
}

void FamilySet::AddHistogramTo(MetricId id, LabelValues values, const HistogramSnapshot& value,
                               bool has_classic) {
  if (exposition_.IsDropped(id)) return;
  Collected& family = families_[static_cast<std::size_t>(id)];
  ClientMetric* metric = Find(id, values);
  AddHistogram(value, has_classic, &metric->histogram);
  if (!exposition_.HasNative(id, format_)) return;
  const auto index = static_cast<std::size_t>(metric - family.metrics.data());
  if (index == family.native.size()) {
    family.native.push_back(value);
  } else {
    family.native[index] += value;
  }
}

void FamilySet::Summary(MetricId id, LabelValues values, uint64_t count, double sum) {
  ClientMetric::Summary& summary = Find(id, values)->summary;
  summary.sample_count += count;
  summary.sample_sum += sum;
}

std::vector<Family> FamilySet::Take() && {
  std::vector<Family> families;
  families.reserve(kMetrics);
  for (int i = 0; i < kMetrics; ++i) {
    if (flags_[i]) RemoveZeros(&families_[i].metrics);
    if (families_[i].metrics.empty()) continue;
    const MetricEntry& entry = CatalogueEntry(static_cast<MetricId>(i));
    Family& family = families.emplace_back();
    family.name = entry.name;
    family.help = entry.help;
    family.type = entry.type;
    family.metric = std::move(families_[i].metrics);
    family.unit = entry.unit;
    family.native = std::move(families_[i].native);
  }
  return families;
}

void FamilySet::SetLabels(MetricId id, LabelValues values, ClientMetric* metric) {
  metric->label.clear();
  metric->label.reserve(scope_labels_.size() + values.size() + static_labels_.size());
  metric->label.insert(metric->label.end(), scope_labels_.begin(), scope_labels_.end());
  AppendLabels(CatalogueEntry(id).labels, values, &metric->label);
  metric->label.insert(metric->label.end(), static_labels_.begin(), static_labels_.end());
}

ClientMetric* FamilySet::FindKey(MetricId id) {
  assert(CatalogueEntry(id).scope == scope_);
  if (exposition_.IsDropped(id)) return &dropped_;
  Collected& family = families_[static_cast<std::size_t>(id)];
  if (family.metrics.empty()) {
    family.metrics.reserve(scopes_);
    family.index_of_key.reserve(scopes_);
  }
  const auto [it, is_new] = family.index_of_key.try_emplace(key_, family.metrics.size());
  if (is_new) family.metrics.emplace_back();
  return &family.metrics[it->second];
}

ClientMetric* FamilySet::Find(MetricId id, LabelValues values) {
  key_ = scope_key_;
  AppendKey(values, &key_);
  ClientMetric* metric = FindKey(id);
  if (metric->label.empty()) SetLabels(id, values, metric);
  return metric;
}

}  // namespace nccl_pulse
