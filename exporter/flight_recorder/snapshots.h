// MakeSnapshots converts a job's dumps into process snapshots, so that the diagnosis applies the
// same rules as to NCCL Pulse's own measurements.
//
//   in the dumps       in the snapshots
//   a dump             a process with unknown host and pid
//   a process group    a communicator, if a rank has a collective in flight in it. It has the calls
//                      after the last one that all ranks completed, in order. If a rank made a call
//                      that its dump lacks, it is assumed to equal the other ranks' call
//   two ranks of a     a communicator of these two, with their incomplete Sends and Recvs to each
//   group              other
//
// If a dump does not show which calls its rank made or completed, the rank's state is unknown to
// the diagnosis. Dumps lack CUDA graphs, durations and, if PyTorch wrote them, the time of writing.
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
  std::map<uint64_t, std::vector<int32_t>> ranks;  // by communicator ID: job ranks, in rank order
};

// `now_ns`: the time that the diagnosis will use, in ns since 1970.
Snapshots MakeSnapshots(const std::vector<Dump>& dumps, int64_t now_ns, const Common& common);

}  // namespace nccl_pulse::flight_recorder

#endif  // EXPORTER_FLIGHT_RECORDER_SNAPSHOTS_H_
