// Makes /api/v1/communicators/ID/calls: the last calls of each rank of one communicator, oldest
// first. docs/http-api.md lists the fields.
//
//   {"time": 1760000003.25, "comm": "00ab12cd34ef5678", "name": "tp", "nranks": 8,
//    "verdict": "rank_not_called", "suspects": [3],
//    "ranks": [{"rank": 3, "pid": 4711, "hostname": "node-1", "global_rank": "3", "gpu": "3",
//               "kept": 256, "missing": null,
//               "calls": [{"number": 17, "collective": 17, "op": "AllReduce",
//                          "datatype": "ncclFloat32", "bytes": 4096, "group": 17,
//                          "stream": "9f31", "root": null, "peer": null, "captured": false,
//                          "launched": 1760..., "state": "in_flight",
//                          "begun": true, "seconds": null, "timed_by": null}]}]}
//
// What became of a call follows from the number of its launch and from how many launches have
// completed. A call of a group counts as completed when all launches before the next group's have:
// NCCL may cut a group into several. As it may hide some of them, a launch of a later group must have
// completed, too, unless the communicator is not known to have had calls that were not reported.
// What has completed is known by marks behind some launches, so of those that are not known to have
// ended only the newest call's, alone in its group, is said to be in flight.
//
// Thread: any, no state. Cost: about 1.5 us a call.
#ifndef EXPORTER_EXPOSITION_CALLS_JSON_H_
#define EXPORTER_EXPOSITION_CALLS_JSON_H_

#include <cstdint>
#include <string>
#include <vector>

#include "exporter/diagnosis/diagnosis_result.h"
#include "exporter/diagnosis/snapshot_set.h"

namespace nccl_pulse {

enum class CallState {
  kUnknown,      // it cannot be told
  kNotLaunched,  // NCCL has not reported its launch: it has not been made, or is hidden
  kLaunched,     // and not known to have ended
  kInFlight,     // the newest call
  kCompleted,
  kCaptured,  // into a CUDA graph, whose replays are not followed here
};
const char* CallStateName(CallState state);

struct JudgedCall {
  const LastCallSnapshot* call;
  CallState state;
  OldestLaunch begun;  // of kLaunched and kInFlight
};
// The last calls of a communicator, oldest first; empty where they were not read.
std::vector<JudgedCall> JudgeCalls(const ProcessSnapshot& process,
                                   const CommunicatorSnapshot& communicator,
                                   int64_t now_realtime_ns, int64_t stands_after_ns);

// "" when no process here has that communicator.
std::string CallsJson(const SnapshotSet& snapshots, uint64_t comm_id, int64_t now_realtime_ns,
                      const DiagnosisResult& diagnosis = {});

}  // namespace nccl_pulse

#endif  // EXPORTER_EXPOSITION_CALLS_JSON_H_
