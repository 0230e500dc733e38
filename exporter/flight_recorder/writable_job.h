// Which communicators and which of their calls a flight-recorder dump can have: the tool compares
// all ranks of a communicator, call by call, so what is missing on one rank is missing on all.
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
  std::map<int64_t, Json> ranks;  // what was said of each
  std::map<int64_t, int> global;  // ... and its number in the job
  int64_t first = 1;              // collective from which on all ranks have theirs
  std::set<int64_t> skipped;      // collectives that no rank's dump has
  std::set<int64_t> unsure;       // ... of which it is not known everywhere whether they have begun
};

// True if the tool can read a call of this kind.
bool IsWritten(const Json& call);

// Those of which all ranks are known, with their calls and their numbers in the job. Of the others,
// and of calls that are skipped, `left_out` gets a sentence.
std::map<std::string, Communicator> FindCommunicators(const std::vector<Json>& pages,
                                                      std::vector<std::string>* left_out);

}  // namespace nccl_pulse::flight_recorder

#endif  // EXPORTER_FLIGHT_RECORDER_WRITABLE_JOB_H_
