// All that is known of a job for its timeline, whether it was watched or comes from a capture.
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
  std::vector<std::string> endpoints;              // names; what follows is of each ...
  std::vector<std::optional<ClockOffset>> clocks;  // ... nothing: not known
  std::vector<nlohmann::json> communicators;       // ... newest /api/v1/communicators, or null
  nlohmann::json verdict;                          // as of `pulse diagnose --json`, or null
  std::vector<std::string> notes;                  // what could not be had, sentences
  std::size_t looks = 0;                           // pages with calls
};

}  // namespace nccl_pulse

#endif  // EXPORTER_TIMELINE_OBSERVATION_H_
