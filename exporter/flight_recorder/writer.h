// WriteFlightRecorder writes the ranks' last calls in the format of PyTorch's Flight Recorder: a
// pickle per rank of the job, which PyTorch's tool torchfrtrace loads.
//
// Source: torch/csrc/distributed/c10d/FlightRecorder.hpp (field names, version 2.4),
// FlightRecorderDetail.hpp (a dump's content), torch/distributed/flight_recorder/components
// (loader.py, builder.py, types.py: what torchfrtrace reads and compares), PyTorch main of November
// 2025.
//
// Stacks, timeouts, and the times at which a call was seen to start and end are not known: these
// fields are absent, or None where the tool needs the key. `state` is "completed", "started" if the
// GPU is known to have begun the call, else "scheduled". Sizes are those of NCCL's call, in one
// dimension: shapes are not known.
//
// Not written:
//   - Send and Recv, and ReduceScatter of unknown types: the tool needs their peer or type;
//   - communicators with a rank whose job rank or calls are not known;
//   - calls before the first one that all ranks have: the tool matches from the beginning;
//   - a collective that one rank has completed and whose state on another rank is not known: the
//     tool reports different states as an error.
//
// Thread: any, no state.
#ifndef EXPORTER_FLIGHT_RECORDER_WRITER_H_
#define EXPORTER_FLIGHT_RECORDER_WRITER_H_

#include <map>
#include <string>
#include <vector>

#include "nlohmann/json.hpp"

namespace nccl_pulse {

struct FlightRecorderDumps {
  std::map<int, std::string> by_rank;  // dumps by job rank
  std::vector<std::string> left_out;   // sentences on what is not written
};

// `pages`: answers of /api/v1/communicators/ID/calls from any number of endpoints. A job rank is
// the field `global_rank`; if no process has it, the rank in a communicator that has all processes.
// Fields that are missing or have another type are read as unknown.
FlightRecorderDumps WriteFlightRecorder(const std::vector<nlohmann::json>& pages);

}  // namespace nccl_pulse

#endif  // EXPORTER_FLIGHT_RECORDER_WRITER_H_
