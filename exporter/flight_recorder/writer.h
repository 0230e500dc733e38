// Last calls in the form of PyTorch's Flight Recorder: for each rank of the job a pickle that
// torchfrtrace loads.
//
// Facts: torch/csrc/distributed/c10d/FlightRecorder.hpp (names of the fields, version 2.4),
// FlightRecorderDetail.hpp (what a dump holds), torch/distributed/flight_recorder/components
// (loader.py, builder.py, types.py: what torchfrtrace reads, and how it compares), PyTorch main of
// November 2025.
//
// What is not known is absent, or None where the tool needs the key: stacks, timeouts, when a call
// was seen to start and end. `state` is "completed", or "started" where the GPU is known to have
// begun it, else "scheduled". Sizes are those of NCCL's call, in one dimension: shapes are not
// known. Not written: Send and Recv (their peer is not known with the call, and the tool refuses
// them without), and communicators of which some rank's number in the job or some rank's calls are
// not known. Of each communicator the calls begin where those of all ranks do, since the tool
// matches from the beginning. A collective that one rank has completed is left out on all ranks if
// the state is not known of another (its completions are known later): the tool takes states that
// differ for an error.
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
  std::map<int, std::string> by_rank;  // of the job
  std::vector<std::string> left_out;   // sentences
};

// `pages`: answers of /api/v1/communicators/ID/calls, of any number of endpoints. Numbers in the
// job are `global_rank`; where no process has one, those of the one communicator that all of them
// are in. Fields that are missing or have another type are read as unknown.
FlightRecorderDumps WriteFlightRecorder(const std::vector<nlohmann::json>& pages);

}  // namespace nccl_pulse

#endif  // EXPORTER_FLIGHT_RECORDER_WRITER_H_
