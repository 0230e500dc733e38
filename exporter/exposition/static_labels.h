// The labels that a user adds to all series of a process (NCCL_PULSE_LABELS).
//
// Thread: any, no state.
#ifndef EXPORTER_EXPOSITION_STATIC_LABELS_H_
#define EXPORTER_EXPOSITION_STATIC_LABELS_H_

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "prometheus/client_metric.h"

namespace nccl_pulse {

// Added to every series, in this order, before those of the series' process.
using StaticLabels = std::vector<std::pair<std::string, std::string>>;

// Appends the labels of "name=value,name=value", as a segment holds them. What is not of this form
// is left out.
void SplitLabels(std::string_view text, StaticLabels* labels);

// The value of one of them, "" without it.
std::string LabelValue(std::string_view text, std::string_view name);

// Those that a page can carry, kMaxStaticLabels at most. Names that are reserved (IsReservedLabel),
// come twice or are no valid label names are left out: they would make the page invalid.
std::vector<prometheus::ClientMetric::Label> UsableLabels(const StaticLabels& labels);

}  // namespace nccl_pulse

#endif  // EXPORTER_EXPOSITION_STATIC_LABELS_H_
