// Settings and log of a process of this host that a snapshot tells of. Who asks may be root, and the
// snapshot may say anything: of a process only its own user's files are read.
//
// Thread: any; blocks for at most the patience. A file that hangs (a lost file system, a process that
// a driver holds) is left to a thread that lives on. Errors: sentences for a person.
#ifndef EXPORTER_FLEET_LOCAL_PROCESS_H_
#define EXPORTER_FLEET_LOCAL_PROCESS_H_

#include <chrono>
#include <string>
#include <string_view>

#include "metrics/snapshot.h"

namespace nccl_pulse {

std::string HostName();

// "" when it runs here under its pid; else why not.
std::string WhyNotHere(const ProcessSnapshot& process);

struct LocalProcess {
  std::string settings, settings_error;
  std::string log, log_error;  // the end of what NCCL_DEBUG_FILE names
};
LocalProcess ReadLocalProcess(const ProcessSnapshot& process,
                              bool (*is_setting)(std::string_view variable),
                              std::chrono::milliseconds patience);

}  // namespace nccl_pulse

#endif  // EXPORTER_FLEET_LOCAL_PROCESS_H_
