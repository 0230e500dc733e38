// The plugin's settings: environment variables NCCL_PULSE_*, read once in init.
//
//   NCCL_PULSE_TIMING        auto (default) | kernel | off   which latencies are measured
//   NCCL_PULSE_LISTEN        [host]:port (default :9410) | unix:/path | off   the node's endpoint
//   NCCL_PULSE_FILE_SD_DIR   a folder (default none)         a file for Prometheus that names it
//   NCCL_PULSE_SERIES_LIMIT  16 ... 30000 (default 2048)     most series of this process
//   NCCL_PULSE_LABELS        name=value,...  (default none)  labels added to every series
//   NCCL_PULSE_HISTOGRAMS    both | classic | native | family=...,...   form on pages (default
//                            both, but native for durations by network steps)
//   NCCL_PULSE_DROP_FAMILIES name,... (default none)         metric families left out of pages
//   NCCL_PULSE_HANG_SECONDS  1 ... 86400 (default 10)        without progress: a suspected hang
//   NCCL_PULSE_NETWORK_WINDOW  off | 0.01 ... 100 (default 1)  share of the time, in per cent,
//                            in which network steps are watched (network_window.h)
//   NCCL_PULSE_GRAPHS        auto | off (default)           whether replays of CUDA graphs are
//                            followed by stamps in them (cuda/graph_stamps.h)
//   NCCL_PULSE_LOG_LEVEL     off | warn (default) | info     what also goes to standard error
//   NCCL_PULSE_CLOCK         auto (default) | monotonic      CPU counter where sound, or always
//                            the kernel's
//
// A bad value never stops anything: the default is used, and one warning names the variable, the
// value and what is used instead. An unknown NCCL_PULSE_ variable is named too: it is most likely a
// slip of the pen.
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
  uint64_t series_limit = 2048;
  int timed_launches_per_second = Sampler::kTimedPerSecond;  // and GPU
  std::map<std::string, std::string> labels;
  std::string label_problems;  // labels that are not used as they stand, and why
  Exposition exposition;
  std::string unknown_families;  // among those to be dropped
  int hang_seconds = 10;
  LogVerbosity log_level = LogVerbosity::kWarn;
  ClockSource clock = ClockSource::kAuto;
  double network_window_percent = 1;  // 0: off
  bool network_window_was_set = false;
  bool follow_graphs = false;
};

const char* TimingModeName(TimingMode mode);

// `environment` as in environ(7), null-terminated. Warnings are complete sentences.
Settings ReadSettings(char* const* environment, std::vector<std::string>* warnings);

}  // namespace nccl_pulse

#endif  // PLUGIN_RUNTIME_SETTINGS_H_
