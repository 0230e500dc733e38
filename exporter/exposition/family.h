// A metric family of a page: prometheus-cpp's type, plus native histograms, which it has no field
// for.
#ifndef EXPORTER_EXPOSITION_FAMILY_H_
#define EXPORTER_EXPOSITION_FAMILY_H_

#include <string_view>
#include <vector>

#include "metrics/snapshot.h"
#include "prometheus/metric_family.h"

namespace nccl_pulse {

struct Family : prometheus::MetricFamily {
  std::string_view unit;                  // as in the catalogue
  std::vector<HistogramSnapshot> native;  // one per metric, or empty
};

}  // namespace nccl_pulse

#endif  // EXPORTER_EXPOSITION_FAMILY_H_
