// Observation is the input of a job's timeline, from a running job or from a capture.
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
  std::vector<std::string> endpoints;              // names
  std::vector<std::optional<ClockOffset>> clocks;  // of each endpoint, if known
  std::vector<nlohmann::json> communicators;       // of each: newest /api/v1/communicators, or null
  nlohmann::json verdict;                          // from `pulse diagnose --json`, or null
  std::vector<std::string> notes;                  // sentences about missing data
  std::size_t looks = 0;                           // responses with calls
};

}  // namespace nccl_pulse

#endif  // EXPORTER_TIMELINE_OBSERVATION_H_
