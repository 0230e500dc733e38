// FindCommunicators finds the communicators and calls that a flight-recorder dump can contain.
// PyTorch's torchfrtrace compares all ranks of a communicator call by call, so a call missing on
// one rank is dropped on all.
//
// Thread: any, no state.
#ifndef EXPORTER_FLIGHT_RECORDER_WRITABLE_JOB_H_
#define EXPORTER_FLIGHT_RECORDER_WRITABLE_JOB_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "nlohmann/json_fwd.hpp"

namespace nccl_pulse::flight_recorder {

using Json = nlohmann::json;

struct Communicator {
  std::string id, name;
  int64_t nranks = 0;
  // By rank in the communicator:
  std::map<int64_t, Json> ranks;  // JSON of the rank
  std::map<int64_t, int> global;  // its rank in the job
  // Numbers of collectives:
  int64_t first = 1;          // first one that all ranks' calls include
  std::set<int64_t> skipped;  // left out of every rank's dump
  std::set<int64_t> unsure;   // on some ranks it is not known whether they have begun
};

// True if torchfrtrace can read a call of this kind.
bool IsWritten(const Json& call);

// Returns, by ID, the communicators of which the calls and job rank of every rank are known.
// `pages`: answers of /api/v1/communicators/ID/calls. Adds sentences on other communicators and on
// skipped calls to `left_out`.
std::map<std::string, Communicator> FindCommunicators(const std::vector<Json>& pages,
                                                      std::vector<std::string>* left_out);

}  // namespace nccl_pulse::flight_recorder

#endif  // EXPORTER_FLIGHT_RECORDER_WRITABLE_JOB_H_
