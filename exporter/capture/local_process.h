// ReadLocalProcess reads the settings and the log of a process on this host; ReadLocalState reads
// its state. A snapshot names the process. Snapshots are untrusted and the caller may be root, so
// only files of the process' own user are read.
//
// Thread: any; blocks up to the patience. A hanging file (a lost file system, a process blocked in
// a driver) is left to a detached thread; at most kMostLost exist. Errors: readable sentences.
#ifndef EXPORTER_CAPTURE_LOCAL_PROCESS_H_
#define EXPORTER_CAPTURE_LOCAL_PROCESS_H_

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "exporter/fleet/address.h"
#include "metrics/snapshot.h"

namespace nccl_pulse {

// Returns NCCL_PULSE_NODE_NAME if set, as processes of a job do; else the host name. A container's
// own host name changes with the container; this one does not.
std::string NodeName();
// True if `hostname` is this host's name: its host name, or its NodeName.
bool IsOwnName(std::string_view hostname);
// True for a loopback address, and for this host's name.
bool IsThisHost(const Address& address);

// Returns the process' pid in this PID namespace; 0 if it is not visible.
int32_t LocalPid(const ProcessSnapshot& process);
// Returns "" if the process runs on this host under its LocalPid, and all `endpoints` are on this
// host; else why not. Another host's claim is no reason to inspect a process of this host.
std::string WhyNotHere(const ProcessSnapshot& process, const std::vector<Address>& endpoints = {});

// True for a variable (NAME=VALUE) that configures NCCL, PyTorch or the job. No other variables of
// an environment are kept.
bool IsSetting(std::string_view variable);

// Limit of unfinished reads in this program. At the limit, nothing more is read.
inline constexpr int kMostLost = 16;

struct LocalProcess {
  std::string settings, settings_error;  // its variables that `is_setting` accepts, one per line
  std::string log, log_error;            // the end of the file that NCCL_DEBUG_FILE names
};
LocalProcess ReadLocalProcess(const ProcessSnapshot& process,
                              bool (*is_setting)(std::string_view variable),
                              std::chrono::milliseconds patience);

// Returns lines of /proc: status; the cgroup, and whether it is frozen; each thread's state, wait
// channel and name, and its kernel stack if the caller may read it. Needs no lock of the process'
// memory. "": see `error`.
std::string ReadLocalState(const ProcessSnapshot& process, std::chrono::milliseconds patience,
                           std::string* error);
// As ReadLocalState, for a process' folder in /proc. `cgroup_root`: mount point of cgroup2.
std::string LocalStateText(int folder, const std::string& cgroup_root);

}  // namespace nccl_pulse

#endif  // EXPORTER_CAPTURE_LOCAL_PROCESS_H_
