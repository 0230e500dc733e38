// Summarizes a node in at most a kilobyte, for programs that watch many. Lists stalled
// communicators and since when, late ranks, and the node's jobs and communicators. The watcher uses
// these to select other nodes to ask.
//
//   {"time": 1760000012.5, "health": "hang", "processes": 8,
//    "stands": [{"communicator": "00ab12cd34ef5678", "since": 1760000001.2, "hang_after": 10,
//                "verdict": "no_progress", "usual": false}],
//    "late": [{"communicator": "00ab12cd34ef5678", "ranks": [3], "seconds_per_second": 0.12}],
//    "jobs": [{"job_id": "4711", "workload": "llama", "processes": 8}],
//    "communicators": ["34ef5678"], "left_out": 0}
//
// `stands` lists communicators without progress for kListedAfterNs, long before that is reported as
// a hang: the watcher's threshold may differ. `hang_after`: the job's threshold here, in seconds.
// `jobs` and `communicators` also cover processes that ended without finalizing: others may wait
// for them. `communicators` lists communicators with ranks on other nodes, by the last 8 digits of
// their ids. The largest come first, so that nodes which must omit some keep the same ones.
// `left_out`: number of entries, over all lists, that did not fit.
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
