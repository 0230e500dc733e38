// Parses the labels that a user adds to all series of a process (NCCL_PULSE_LABELS).
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

// Names and values. Of equal names the first counts.
using StaticLabels = std::vector<std::pair<std::string, std::string>>;

// Appends the labels of "name=value,name=value", as a segment holds them. Skips other text.
void SplitLabels(std::string_view text, StaticLabels* labels);

// Returns the value of a label, "" if missing.
std::string LabelValue(std::string_view text, std::string_view name);

// Returns the labels that a page can have, at most kMaxStaticLabels. Leaves out reserved
// (IsReservedLabel), repeated and invalid names, which would make the page invalid.
std::vector<prometheus::ClientMetric::Label> UsableLabels(const StaticLabels& labels);

}  // namespace nccl_pulse

#endif  // EXPORTER_EXPOSITION_STATIC_LABELS_H_
