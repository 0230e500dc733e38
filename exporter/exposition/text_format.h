// Writes metric families in the two text formats: Prometheus' own, 0.0.4, and OpenMetrics 1.0.
//
// Prometheus' format equals prometheus-cpp's prometheus::TextSerializer byte for byte (a test
// compares them), at a fraction of its time. The serializer writes label values character by
// character through a std::ostream, and again for each line of a histogram. Here a series' labels
// are rendered once and copied. Figures: //bench:scrape.
//
// Thread: any, no state. Cost, with BuildFamilies: about 4.5 us per histogram, including 20 lines
// of 170 bytes and its counters.
#ifndef EXPORTER_EXPOSITION_TEXT_FORMAT_H_
#define EXPORTER_EXPOSITION_TEXT_FORMAT_H_

#include <string>
#include <vector>

#include "exporter/exposition/families.h"

namespace nccl_pulse {

std::string TextFormat(const std::vector<Family>& families);

// Returns the same samples as TextFormat, under the same names. OpenMetrics requires three
// differences. A counter's family is named without _total. A gauge named ..._info has the type
// info, and its family is named without the suffix. Whole numbers in `le` are written "1.0". There
// are no _created samples: a series' start is not known for sure.
std::string OpenMetricsFormat(const std::vector<Family>& families);

}  // namespace nccl_pulse

#endif  // EXPORTER_EXPOSITION_TEXT_FORMAT_H_
