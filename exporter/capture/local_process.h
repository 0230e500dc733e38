// Reads the settings and the log of a process on this host that a snapshot names. The caller may be
// root and a snapshot may say anything, so only files of the process' own user are read.
//
// Thread: any; blocks for at most the patience. A file that hangs (a lost file system, a process
// that a driver holds) is left to a thread that lives on, of which there are kMostLost at most.
// Errors: sentences for a person.
#ifndef EXPORTER_CAPTURE_LOCAL_PROCESS_H_
#define EXPORTER_CAPTURE_LOCAL_PROCESS_H_

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "exporter/fleet/address.h"
#include "metrics/snapshot.h"

namespace nccl_pulse {

std::string HostName();
// NCCL_PULSE_NODE_NAME where it is set, as processes of a job call their host then; else the
// host's. A container's host name is its own and changes with it; this does not.
std::string NodeName();
// True if processes that call their host so are on this one, which has two names.
bool IsOwnName(std::string_view hostname);
// What is asked there is said by this host.
bool IsThisHost(const Address& address);

// Its pid as it is seen here; 0: it is not.
int32_t LocalPid(const ProcessSnapshot& process);
// "" when it runs here under that; else why not.
std::string WhyNotHere(const ProcessSnapshot& process);

// True for a variable (NAME=VALUE) of a process' environment that says how NCCL, PyTorch or the job
// was set up. Nothing else of an environment is kept.
bool IsSetting(std::string_view variable);

// Reads that did not come back, of this program. With so many nothing more is read.
inline constexpr int kMostLost = 16;

struct LocalProcess {
  std::string settings, settings_error;
  std::string log, log_error;  // the end of what NCCL_DEBUG_FILE names
};
LocalProcess ReadLocalProcess(const ProcessSnapshot& process,
                              bool (*is_setting)(std::string_view variable),
                              std::chrono::milliseconds patience);

}  // namespace nccl_pulse

#endif  // EXPORTER_CAPTURE_LOCAL_PROCESS_H_
