// Observation is the input of a job's timeline, from watching or from a capture.
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
  std::vector<std::string> endpoints;              // names; the next two are per endpoint ...
  std::vector<std::optional<ClockOffset>> clocks;  // ... nothing: not known
  std::vector<nlohmann::json> communicators;       // ... newest /api/v1/communicators, or null
  nlohmann::json verdict;                          // from `pulse diagnose --json`, or null
  std::vector<std::string> notes;                  // what is missing, sentences
  std::size_t looks = 0;                           // pages with calls
};

}  // namespace nccl_pulse

#endif  // EXPORTER_TIMELINE_OBSERVATION_H_
