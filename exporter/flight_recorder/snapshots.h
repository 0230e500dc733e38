// A job's dumps as the diagnosis reads processes: so that it judges them by the same rules as what
// NCCL Pulse has measured itself.
//
//   a dump             a process, of which neither host nor pid is known
//   a process group    a communicator, if some rank has a collective in flight there. Counted are the
//                      calls behind the last one that all ranks have completed, and their order; a
//                      call that is missing in a rank's dump and was made is taken to be what the
//                      others called
//   two ranks of a     a communicator of two, with the Sends and Recvs that have not completed: a dump
//   group              knows the peers
//
// A rank of which a dump does not tell what it has called or completed is unknown to the diagnosis.
// Not in dumps: when they were made (taken to be long after the last call: PyTorch makes them when
// a call has timed out), CUDA graphs, durations.
//
// Thread: any, no state.
#ifndef EXPORTER_FLIGHT_RECORDER_SNAPSHOTS_H_
#define EXPORTER_FLIGHT_RECORDER_SNAPSHOTS_H_

#include <cstdint>
#include <map>
#include <vector>

#include "exporter/diagnosis/snapshot_set.h"
#include "exporter/flight_recorder/dump.h"

namespace nccl_pulse::flight_recorder {

struct Snapshots {
  SnapshotSet set;
  std::map<uint64_t, std::vector<int32_t>> ranks;  // of the job, by communicator and rank there
};

// `now_ns`: of the diagnosis that follows.
Snapshots MakeSnapshots(const std::vector<Dump>& dumps, int64_t now_ns, const Common& common);

}  // namespace nccl_pulse::flight_recorder

#endif  // EXPORTER_FLIGHT_RECORDER_SNAPSHOTS_H_
