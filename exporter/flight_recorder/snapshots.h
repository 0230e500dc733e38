// MakeSnapshots converts a job's dumps into process snapshots, so that the diagnosis applies the
// same rules as to NCCL Pulse's own measurements.
//
//   a dump             a process without known host and pid
//   a process group    a communicator, if some rank has a collective in flight in it. It has the
//                      calls after the last one that all ranks completed, and their order. If a
//                      rank made a call that its dump lacks, the others' call is assumed
//   two ranks of a     a communicator of two, with the incomplete Sends and Recvs: a dump knows the
//   group              peers
//
// A rank whose calls or completions are not known from its dump is unknown to the diagnosis. Not in
// dumps: CUDA graphs, durations, and in PyTorch's dumps the time of writing.
//
// Thread: any, no state.
#ifndef EXPORTER_FLIGHT_RECORDER_SNAPSHOTS_H_
#define EXPORTER_FLIGHT_RECORDER_SNAPSHOTS_H_

#include <cstdint>
#include <map>
#include <vector>

#include "exporter/diagnosis/facts/snapshot_set.h"
#include "exporter/flight_recorder/dump.h"

namespace nccl_pulse::flight_recorder {

struct Snapshots {
  SnapshotSet set;
  std::map<uint64_t, std::vector<int32_t>> ranks;  // job ranks, by communicator and its rank
};

// `now_ns`: time of the following diagnosis.
Snapshots MakeSnapshots(const std::vector<Dump>& dumps, int64_t now_ns, const Common& common);

}  // namespace nccl_pulse::flight_recorder

#endif  // EXPORTER_FLIGHT_RECORDER_SNAPSHOTS_H_
