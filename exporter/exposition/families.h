// Converts snapshots to metric families.
//
// Each set of labels may appear only once on a page. But several sources can have equal labels:
//   - a communicator that is created again under the same id and rank;
//   - two processes with one pid in different PID namespaces;
//   - communicators whose id NCCL does not report.
// The page then shows one series:
//
//   counters, histograms,   are added up. The sum never steps back while its parts are kept, and
//   summaries               contains all operations. Showing only the newest part would be a
//                           counter reset each time a communicator is created again.
//   gauges                  come from the newest source. A gauge is a state, and states of
//                           different communicators cannot be added.
//   info metrics            come from the newest source. They must be unique per (comm, rank), or
//                           joins on those two labels fail in Prometheus.
//
// Thread: any, no state. Cost: see exporter/exposition/text_format.h.
#ifndef EXPORTER_EXPOSITION_FAMILIES_H_
#define EXPORTER_EXPOSITION_FAMILIES_H_

#include <cstdint>
#include <vector>

#include "exporter/base/proc.h"
#include "exporter/diagnosis/diagnosis_result.h"
#include "exporter/diagnosis/facts/snapshot_set.h"
#include "exporter/exposition/exposition.h"
#include "exporter/exposition/family.h"
#include "exporter/exposition/static_labels.h"

namespace nccl_pulse {

// The endpoint's own statistics.
struct ScrapeStats {
  uint64_t pages = 0;          // made so far
  double seconds = 0;          // spent on making and compressing them
  uint64_t segments_read = 0;  // for all pages, including this one
  ProcessUse process{};        // of the serving process
};

// Returns the families for a page of this format, in the catalogue's order, without those that have
// no series. They have classic buckets and native histograms if format and exposition allow.
// `now_realtime_ns`: when the snapshots were read; 0: no data is outdated.
std::vector<Family> BuildFamilies(const SnapshotSet& snapshots, const StaticLabels& static_labels,
                                  const ScrapeStats& stats, const Exposition& exposition = {},
                                  PageFormat format = PageFormat::kText,
                                  const DiagnosisResult& diagnosis = {},
                                  int64_t now_realtime_ns = 0);

}  // namespace nccl_pulse

#endif  // EXPORTER_EXPOSITION_FAMILIES_H_
