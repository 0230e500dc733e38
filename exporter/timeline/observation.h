// Observation is the data from which a job's timeline is drawn: polls of a running job, or a
// capture.
//
// Thread: plain data, no sharing.
#ifndef EXPORTER_TIMELINE_OBSERVATION_H_
#define EXPORTER_TIMELINE_OBSERVATION_H_

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "exporter/fleet/clock_offset.h"
#include "exporter/timeline/recording.h"
#include "nlohmann/json.hpp"

namespace nccl_pulse {

struct Observation {
  JobRecording recording;
  // One entry per endpoint:
  std::vector<std::string> endpoints;              // names
  std::vector<std::optional<ClockOffset>> clocks;  // against the local clock, if known
  std::vector<nlohmann::json> communicators;       // newest /api/v1/communicators; null: none
  // About the job:
  nlohmann::json verdict;          // as `pulse diagnose --json` prints it; null: none
  std::vector<std::string> notes;  // sentences about missing data
  std::size_t looks = 0;           // answers with calls, of all endpoints and polls
};

}  // namespace nccl_pulse

#endif  // EXPORTER_TIMELINE_OBSERVATION_H_
