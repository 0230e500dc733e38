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
  int64_t start_realtime_ns = 0;
  RunState state{};
  bool has_plugin = false;
  bool is_guess = false;     // on a GPU, and its maps can't be read
  std::string nccl_version;  // "2.28.9", if the library's file name has it
  // "": not set, or not readable.
  std::string global_rank, world_size, local_world_size, slurm_job_id;
  std::string ras_address;
  bool is_ras_off = false;  // NCCL_RAS_ENABLE=0
};

struct HostProcesses {
  std::vector<HostProcess> processes;  // in the order of their pids
  std::vector<HostProcess> unloaded;   // RANK and WORLD_SIZE are set, and NCCL isn't loaded
  std::size_t unread = 0;              // that did not answer
};

// `pids`: processes on GPUs, of which those count too whose maps only their user may read. Null: all
// processes of the host.
HostProcesses FindNcclProcesses(std::chrono::milliseconds patience,
                                const std::vector<int32_t>* pids = nullptr,
                                const std::string& proc = "/proc");

}  // namespace nccl_pulse::outside

#endif  // EXPORTER_OUTSIDE_HOST_PROCESSES_H_
