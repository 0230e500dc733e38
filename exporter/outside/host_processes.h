// Finds this host's processes that have NCCL loaded, by their files in /proc.
//
//   maps      libnccl, and NCCL Pulse's plugin
//   stat      run state
//   status    pid in the process' own PID namespace
//   environ   the variables below; only readable for the same user, or root
//
// Nothing that a process' user controls is followed: no path of a map or variable is opened. Nothing
// is written, and no process is traced or stopped. A program that links NCCL statically isn't found.
//
// Thread: any; blocks for `patience` at most. A process whose files don't answer (a thread of it holds
// its memory map in a driver) is left to a thread that stays behind; there are kMostLost at most.
#ifndef EXPORTER_OUTSIDE_HOST_PROCESSES_H_
#define EXPORTER_OUTSIDE_HOST_PROCESSES_H_

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "metrics/snapshot.h"

namespace nccl_pulse::outside {

inline constexpr std::size_t kMostProcesses = 1024;  // with NCCL
inline constexpr std::size_t kMostMapsBytes = std::size_t{8} << 20;
inline constexpr std::size_t kMostEnvironBytes = std::size_t{1} << 20;
inline constexpr int kMostLost = 8;

struct HostProcess {
  int32_t pid = 0;
  int32_t own_pid = 0;  // in its own PID namespace
  uid_t user = 0;
  RunState state{};
  bool has_plugin = false;
  // "": not set, or not readable.
  std::string global_rank, world_size, slurm_job_id;
  std::string ras_address;
  bool is_ras_off = false;  // NCCL_RAS_ENABLE=0
};

struct HostProcesses {
  std::vector<HostProcess> processes;  // in the order of their pids
  std::size_t unread = 0;              // that did not answer
};

HostProcesses FindNcclProcesses(std::chrono::milliseconds patience,
                                const std::string& proc = "/proc");

// Returns the run state that /proc has now; kEnded: there is no such process.
RunState RunStateIn(const std::string& proc, int32_t pid);

}  // namespace nccl_pulse::outside

#endif  // EXPORTER_OUTSIDE_HOST_PROCESSES_H_
