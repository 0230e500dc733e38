// Snapshots to JSON, for people and programs that want to know what a node's communicators do now:
// /api/v1/communicators.
//
//   {"time": 1760000003.25,
//    "health": {"status": "hang", "lost_processes": 0, "stopped_processes": 0, "ranks": 4,
//               "unknown_ranks": 0, "communicators": 1, "blind_communicators": 0,
//               "notes": ["1 process was lost ..."], "summary": "No hang and no straggler ..."},
//    "communicators": [
//      {"comm": "00ab12cd34ef5678", "name": "tp", "nranks": 8, "nnodes": 2,
//       "hang": {"verdict": "rank_not_called", "since": 1760..., "op": "AllReduce",
//                "suspects": [3], "waiting": [0, 1, 2], "circle": [], "longest_wait_before": 0,
//                "usual": false, "text": "Rank 3 (pid 4711) has not ..."},
//       "queued": {"since": 1760..., "op": "AllReduce", "ranks": [0, 1], "text": "Rank 0 ..."},
//       "note": "Ranks 1 to 3 have not called ...",
//       "straggler": {"rank": 3, "seconds_per_second": 0.2, "mean_seconds": 0.001,
//                     "late_share": 0.9, "matched_calls": 100, "text": "Rank 3 comes last ..."},
//       "operations": [{"op": "AllReduce", "size": "le_1MiB", "calls": 444, "bytes": ...,
//                       "latencies": [{"measure": "duration", "source": "stream", "count": 36, ...,
//                                      "buckets": [[0.0001974, 30], [0.0002348, 6]]}]}],
//       "ranks": [
//        {"rank": 3, "index": 0, "active": true, "state": "in_flight", "in_flight_since": 1760...,
//         "begun": true, "unknown": null,
//         "process": {"pid": 4711, "state": "live", "last_poll": 1760..., "poller_started": true,
//                     "event_mask_changes": 0, "foreign_event_mask": null, ...}, "gpu": {...},
//         "last_call": {"op": "AllReduce", "size": "le_1MiB", "calls": 111},
//         "straggler_seconds": 1.5,
//         "launches": {"made": 111, "completed": 108, "in_flight": 3, "in_flight_since": 1760...},
//         "unreported_calls": 0, "unreported_since": null,
//         "longest_waits": [{"op": "AllReduce", "seconds": 540}],
//         "last_launch": 1760..., "last_completion": 1760...,
//         "last_timed_operation": {"op": "AllReduce", "size": ..., "bytes": ..., "seconds": ...,
//                                  "ended": ..., "call": ...},
//         "operations": [{"op": "AllReduce", "calls": 111, "bytes": ..., "sequence": 111}],
//         "latencies": [{"op": "AllReduce", "size": "le_1MiB", "measure": "duration",
//                        "source": "stream", "count": 9, "mean": ..., "p50": ..., "p90": ...,
//                        "p99": ..., "max": ..., "bus_bytes_per_second": ...}]}]}]}
//
// "health" is of the whole page, health.h. "hang", "queued", "note" and "straggler" are null when
// there is none (diagnosis.h). "usual": the wait is no longer than 1.5 times "longest_wait_before".
// "circle": of circular_wait, {"comm", "rank"} of each step.
//
// A rank's "state" is idle, in_flight, stopped (its process does not run), ended (finalized), gone
// (its process ended), or unknown; "unknown" says why it cannot be told whether it is idle
// (rank_activity.h). "begun" says of its oldest launch in flight whether the GPU has come to it;
// null where that is not known, and always while launches complete. "unreported_calls": made since
// the last launch that NCCL reported. "longest_waits": that ended well, from 5 s on.
//
// A communicator's "operations" are sums over the ranks here; "buckets" are those of
// BucketsJson (latency_json.h). "index": the n-th communicator of its process.
//
// Times are Unix times, durations are seconds. What is not known is null. Communicators stand in
// the order of their ids, ranks in theirs. A quantile is exact to its histogram's bucket (about 9
// %); "max" is the upper bound of the last bucket that holds something. The bus bandwidth is
// nccl-tests' convention over all timed operations of the series; completion times have none (they
// include waiting).
//
// Thread: any, no state. Cost: about that of a /metrics page.
#ifndef EXPORTER_EXPOSITION_COMMUNICATORS_JSON_H_
#define EXPORTER_EXPOSITION_COMMUNICATORS_JSON_H_

#include <cstdint>
#include <string>

#include "exporter/diagnosis/diagnosis_result.h"
#include "exporter/diagnosis/snapshot_set.h"
#include "metrics/snapshot.h"

namespace nccl_pulse {

std::string CommunicatorsJson(const SnapshotSet& snapshots, int64_t now_realtime_ns,
                              const DiagnosisResult& diagnosis = {});

}  // namespace nccl_pulse

#endif  // EXPORTER_EXPOSITION_COMMUNICATORS_JSON_H_
