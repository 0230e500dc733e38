// Snapshots to metric families: which number becomes which series.
//
// One rule keeps every page valid, whatever the snapshots hold: a set of labels is one series.
// Where several things claim the same labels (a communicator created again under the same id and
// rank, two processes with one pid in different PID namespaces, communicators whose id NCCL does
// not tell), their counters, histograms and summaries are added up, and gauges and info metrics are
// the newest one's.
//   - Adding never steps back while those that are added are kept, and hides nobody's operations.
//     Showing only the newest would be a counter reset each time a communicator is created again.
//   - A gauge is a state, and states of different communicators cannot be added. An info metric
//   must be
//     unique per (comm, rank), or joins on those two labels fail in Prometheus.
//
// Classic buckets are a fixed few, the same in every histogram, process and rank, and empty ones
// are there, too: a bucket that appears later breaks rate() over it, one that others lack breaks
// sums. They are an exact subset of the cells (metrics/histogram_geometry.h): factors of two where
// operations spend their time, few beyond, for each costs a series of every histogram.
//
// Thread: any, no state. Cost: see exporter/exposition/text_format.h.
#ifndef EXPORTER_EXPOSITION_FAMILIES_H_
#define EXPORTER_EXPOSITION_FAMILIES_H_

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "exporter/diagnosis/diagnosis_result.h"
#include "exporter/diagnosis/snapshot_set.h"
#include "exporter/exposition/exposition.h"
#include "prometheus/metric_family.h"

namespace nccl_pulse {

// Added to every series, in this order, before those of the series' process. Names that are
// reserved (IsReservedLabel), come twice or are no valid label names are left out: they would make
// the page invalid.
using StaticLabels = std::vector<std::pair<std::string, std::string>>;

// What the endpoint knows about itself.
struct ScrapeStats {
  uint64_t pages = 0;
  double seconds = 0;          // that making those pages took
  uint64_t segments_read = 0;  // for all pages, this one included
};

// Upper bounds of the classic buckets: these powers of two, in seconds; 3.8 us to 31 ms, 125 ms, 1
// s and 16 s.
inline constexpr std::array<int, 17> kClassicExponents = {
    -18, -17, -16, -15, -14, -13, -12, -11, -10, -9, -8, -7, -6, -5, -3, 0, 4};

// A family, and what prometheus-cpp's has no place for.
struct Family : prometheus::MetricFamily {
  std::string_view unit;                  // as in the catalogue
  std::vector<HistogramSnapshot> native;  // one of each metric, or none at all
};

// For a page of this format: classic buckets and native histograms where it can carry them and the
// exposition wants them. Families without a series are left out; the others come in the catalogue's
// order. `now_realtime_ns`: when the snapshots were read; 0: nothing in them is too old.
std::vector<Family> BuildFamilies(const SnapshotSet& snapshots, const StaticLabels& static_labels,
                                  const ScrapeStats& stats, const Exposition& exposition = {},
                                  PageFormat format = PageFormat::kText,
                                  const DiagnosisResult& diagnosis = {},
                                  int64_t now_realtime_ns = 0);

}  // namespace nccl_pulse

#endif  // EXPORTER_EXPOSITION_FAMILIES_H_
