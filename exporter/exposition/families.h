// Turns snapshots into metric families: which number becomes which series.
//
// One rule keeps every page valid, whatever the snapshots hold: a set of labels is one series.
// Several things may claim the same labels: a communicator that is created again under the same id
// and rank, two processes with one pid in different PID namespaces, communicators whose id NCCL
// does not tell. Then:
//
//   counters, histograms,   are added up. The sum never steps back while its parts are kept, and it
//   summaries               hides nobody's operations. Showing only the newest part would be a
//                           counter reset each time a communicator is created again.
//   gauges                  are those of the newest. A gauge is a state, and states of different
//                           communicators cannot be added.
//   info metrics            are those of the newest. They must be unique per (comm, rank), or joins
//                           on those two labels fail in Prometheus.
//
// Thread: any, no state. Cost: see exporter/exposition/text_format.h.
#ifndef EXPORTER_EXPOSITION_FAMILIES_H_
#define EXPORTER_EXPOSITION_FAMILIES_H_

#include <cstdint>
#include <vector>

#include "exporter/base/process_use.h"
#include "exporter/diagnosis/diagnosis_result.h"
#include "exporter/diagnosis/snapshot_set.h"
#include "exporter/exposition/exposition.h"
#include "exporter/exposition/family.h"
#include "exporter/exposition/static_labels.h"

namespace nccl_pulse {

// What the endpoint knows about itself.
struct ScrapeStats {
  uint64_t pages = 0;
  double seconds = 0;          // that making those pages took
  uint64_t segments_read = 0;  // for all pages, this one included
  ProcessUse process{};        // of the process that serves
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
