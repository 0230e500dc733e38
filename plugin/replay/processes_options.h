// What is asked of a replay in several processes.
#ifndef PLUGIN_REPLAY_PROCESSES_OPTIONS_H_
#define PLUGIN_REPLAY_PROCESSES_OPTIONS_H_

#include <string>
#include <vector>

#include "plugin/replay/driver.h"
#include "plugin/replay/replay_error.h"

namespace nccl_pulse {

struct ProcessesOptions {
  std::vector<std::string> files;  // traces, one per process
  ReplayOptions replay;            // its logger and times are set here
  double hold_s = 0;               // how long the processes live on after the last callback
};

}  // namespace nccl_pulse

#endif  // PLUGIN_REPLAY_PROCESSES_OPTIONS_H_
