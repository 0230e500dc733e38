// The plugin's settings: environment variables NCCL_PULSE_*, read once in init. docs/settings.md
// lists them.
//
// A bad value never stops a job: a warning names the variable, its value, and the value used
// instead. An unknown NCCL_PULSE_ variable, most likely a typo, also gets a warning.
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
  std::string file_sd_directory;  // where endpoints are announced to Prometheus; empty: nowhere
  std::string node_name;          // empty: the host's name
  uint64_t series_limit = 2048;   // histograms and counters of the whole process
  uint32_t last_calls = 256;      // kept per communicator: 0, 64, 128, 256, ...
  int timed_launches_per_second = Sampler::kTimedPerSecond;  // per GPU
  std::map<std::string, std::string> labels;                 // set by the user, for all metrics
  std::string label_problems;  // for a warning: labels that are changed or not used, and why
  Exposition exposition;
  std::string unknown_families;  // for a warning: unknown names in DROP_FAMILIES
  int hang_seconds = 10;
  LogVerbosity log_level = LogVerbosity::kWarn;
  ClockSource clock = ClockSource::kAuto;
  double network_window_percent = 1;  // share of the time in which network steps are watched
  bool network_window_was_set = false;
  uint32_t from_environment = 0;  // bit n: LiveSetting n was set in the environment
  bool IsFromEnvironment(LiveSetting setting) const {
    return (from_environment >> static_cast<int>(setting) & 1) != 0;
  }
  bool follow_graphs = true;  // adds stamps to CUDA graphs
  bool follow_work = true;    // reads NCCL's counters of finished work
  int user_tags = 0;          // number of tags that become labels
};

const char* TimingModeName(TimingMode mode);

// Reads the settings from `environment`, which is null-terminated as in environ(7). Adds complete
// sentences to `warnings`.
Settings ReadSettings(char* const* environment, std::vector<std::string>* warnings);

}  // namespace nccl_pulse

#endif  // PLUGIN_RUNTIME_SETTINGS_H_
