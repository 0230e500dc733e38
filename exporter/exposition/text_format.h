// Metric families to the two text formats: Prometheus' own, 0.0.4, and OpenMetrics 1.0.
//
// The former byte for byte what prometheus::TextSerializer of prometheus-cpp writes (a test holds
// the two side by side), at a fraction of its time: that one writes label values character by
// character through a std::ostream, and again for each of a histogram's lines. Here a series'
// labels are rendered once and copied. Figures: //bench:scrape.
//
// Thread: any, no state. Cost, with BuildFamilies: about 4.5 us per histogram, 20 lines of 170
// bytes and the counters beside it.
#ifndef EXPORTER_EXPOSITION_TEXT_FORMAT_H_
#define EXPORTER_EXPOSITION_TEXT_FORMAT_H_

#include <string>
#include <vector>

#include "exporter/exposition/families.h"

namespace nccl_pulse {

std::string TextFormat(const std::vector<Family>& families);

// The same samples under the same names. By OpenMetrics' rules a counter's family is called without
// its _total, a gauge named ..._info is of the type info and its family called without that, and
// whole numbers as `le` are written "1.0". No _created: when a series began is not known for sure.
std::string OpenMetricsFormat(const std::vector<Family>& families);

}  // namespace nccl_pulse

#endif  // EXPORTER_EXPOSITION_TEXT_FORMAT_H_
