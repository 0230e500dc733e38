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

// Memory limit of the pages that are kept of all endpoints.
inline constexpr std::size_t kMostPageBytes = std::size_t{512} << 20;

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

// Reads the output of `pulse capture`, a folder or a .tar.gz. Returns false if it cannot be read, or
// is no capture; `error` is then a readable sentence. Blocks.
//
// Captures are untrusted: names, sizes and content are checked, and at most 512 MiB are read. A
// broken file is left out and listed in the notes. Memory: the files; of a .tar.gz meanwhile also
// the whole archive.
bool ReadCapture(const std::string& path, Observation* seen, std::string* error);

}  // namespace nccl_pulse

#endif  // EXPORTER_TIMELINE_OBSERVATION_H_
