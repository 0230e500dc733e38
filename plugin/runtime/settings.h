// The plugin's settings: environment variables NCCL_PULSE_*, read once in init.
//
//   variable (NCCL_PULSE_...)      values, default in brackets        what it sets
//   TIMING                         [auto] kernel off                  which latencies are measured
//   LISTEN                         host:port unix:/path off [:9410]   the node's endpoint; a bad value
//                                                                     opens it to this machine only
//   FILE_SD_DIR                    a folder [none]                    gets a target file with the
//                                                                     endpoint, for Prometheus
//   NODE_NAME                      a name [the host's]                the label Hostname; in a pod
//                                                                     the host has the pod's name
//   SERIES_LIMIT                   16 ... 30000 [2048]                most series of this process
//   TIMED_LAUNCHES_PER_SECOND      1 ... 1000000 one-in-N [100]       budget of timed launches on
//                                                                     each GPU
//   LAST_CALLS                     0 ... 512 [256]                   last calls that each
//                                                                     communicator keeps
//   LABELS                         name=value,... [none]              labels of every series
//   HISTOGRAMS                     both classic native                form of histograms on pages
//                                  family=...,... [both; native for
//                                  durations by network steps]
//   DROP_FAMILIES                  name,... [none]                    metric families left out
//   HANG_SECONDS                   1 ... 86400 [10]                   time without progress after
//                                                                     which a hang is suspected
//   NETWORK_WINDOW                 0.01 ... 100 off [1]               share of the time, per cent,
//                                                                     in which network steps are
//                                                                     watched (network_window.h)
//   GRAPHS                         [auto] off                         stamps in long CUDA graphs
//                                                                     (graph_stamps.h)
//   WORK_COUNTERS                  [on] off                           reading NCCL's counters of
//                                                                     finished work (work_proof.h)
//   USER_TAGS                      1 ... 64 off [off]                 number of the user's call tags
//                                                                     that become labels
//   NEXT_PLUGIN                    a library [none]                   a second profiler behind this one
//                                                                     (plugin/next)
//   LOG_LEVEL                      off [warn] info                    messages copied to stderr
//   CLOCK                          [auto] monotonic                   the CPU's counter where it is
//                                                                     sound, or always the kernel's
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
  uint32_t last_calls = 256;                                 // 0, or a power of two of full pages
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
