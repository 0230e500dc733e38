// Makes /api/v1/summary: a node in at most a kilobyte, for `pulse watch`, which polls many nodes.
// Lists stalled communicators and since when, late ranks, and the node's jobs and communicators, by
// which the watcher finds the other nodes of a job.
//
//   {"time": 1760000012.5, "health": "hang", "processes": 8,
//    "stands": [{"communicator": "00ab12cd34ef5678", "since": 1760000001.2, "hang_after": 10,
//                "verdict": "no_progress", "usual": false}],
//    "late": [{"communicator": "00ab12cd34ef5678", "ranks": [3], "seconds_per_second": 0.12}],
//    "jobs": [{"job_id": "4711", "workload": "llama", "processes": 8}],
//    "communicators": ["34ef5678"], "left_out": 0}
//
//   stands         communicators without progress for kListedAfterNs, long before this counts as a
//                  hang, because the watcher's threshold may differ. since: Unix time. hang_after:
//                  the job's threshold here, in seconds. usual: a wait about as long ended before
//   jobs           also those of processes that ended without finalizing: others may wait for them.
//                  `processes` counts live ones
//   communicators  with ranks on other nodes, by the last 8 digits of their ids; include ended
//                  processes, too. The largest come first, so that nodes which must omit some keep
//                  the same ones
//   ended          of these, as far as they fit, the communicators without a live rank here; omitted
//                  if there are none
//   left_out       number of entries, over all other lists, that did not fit
//
// Thread: any, no state.
#ifndef EXPORTER_EXPOSITION_JSON_SUMMARY_JSON_H_
#define EXPORTER_EXPOSITION_JSON_SUMMARY_JSON_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "exporter/diagnosis/diagnosis_result.h"
#include "exporter/diagnosis/facts/snapshot_set.h"

namespace nccl_pulse {

inline constexpr std::size_t kMostSummaryBytes = 1000;
inline constexpr int64_t kListedAfterNs = 2000000000;

std::string SummaryJson(const SnapshotSet& snapshots, const DiagnosisResult& diagnosis,
                        int64_t now_realtime_ns);

}  // namespace nccl_pulse

#endif  // EXPORTER_EXPOSITION_JSON_SUMMARY_JSON_H_
