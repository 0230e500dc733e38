// The plugin's settings: environment variables NCCL_PULSE_*, read once in init. docs/settings.md
// lists them.
//
// A bad value never stops a job: one warning has the variable, the value and the value in use. An
// unknown NCCL_PULSE_ variable, most likely a typo, also gets a warning.
//
// Thread: init, under the runtime's lock (getenv). Cost: microseconds, allocates.
#ifndef PLUGIN_RUNTIME_SETTINGS_H_
#define PLUGIN_RUNTIME_SETTINGS_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "exporter/exposition/exposition.h"
#include "plugin/runtime/log.h"
#include "plugin/tracker/clock.h"
#include "plugin/tracker/sampler.h"
#include "plugin/tracker/tracker.h"

namespace nccl_pulse {

struct Settings {
  TimingMode timing = TimingMode::kAuto;
  std::string listen = ":9410";
  std::string file_sd_directory;
  std::string node_name;  // empty: the host's name
  uint64_t series_limit = 2048;
  uint32_t last_calls = 256;                                 // 0, or a power of two of full chunks
  int timed_launches_per_second = Sampler::kTimedPerSecond;  // per GPU
  std::map<std::string, std::string> labels;
  std::string label_problems;  // labels that are changed or not used, and why
  Exposition exposition;
  std::string unknown_families;  // unknown names in DROP_FAMILIES
  int hang_seconds = 10;
  LogVerbosity log_level = LogVerbosity::kWarn;
  ClockSource clock = ClockSource::kAuto;
  double network_window_percent = 1;  // 0: off
  bool network_window_was_set = false;
  uint32_t from_environment = 0;  // bit n: LiveSetting n was set in the environment
  bool IsFromEnvironment(LiveSetting setting) const {
    return (from_environment >> static_cast<int>(setting) & 1) != 0;
  }
  bool follow_graphs = true;
  bool follow_work = true;
  int user_tags = 0;  // number of tags that become labels
};

const char* TimingModeName(TimingMode mode);

// `environment` as in environ(7), null-terminated. Warnings are complete sentences.
Settings ReadSettings(char* const* environment, std::vector<std::string>* warnings);

}  // namespace nccl_pulse

#endif  // PLUGIN_RUNTIME_SETTINGS_H_
