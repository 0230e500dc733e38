// FindNcclProcesses finds this host's processes that have loaded NCCL, by their files in /proc.
//
//   maps      libnccl, and NCCL Pulse's plugin
//   stat      run state, also of threads
//   status    pid in the process' own PID namespace
//   cgroup    whether cgroup2 has frozen it
//   ns/net    network namespace; only readable for the same user, or root
//   environ   the variables below; only readable for the same user, or root
//
// No path that a process' user controls, in maps or variables, is opened. Nothing is written, and
// no process is traced or stopped. Programs that link NCCL statically aren't found.
//
// Thread: any; blocks for `patience` and half a second at most. A thread reads each process. If its
// files don't answer, because a driver call holds its memory map, the thread is left behind; there
// are at most kMostLost such threads.
#ifndef EXPORTER_OUTSIDE_HOST_PROCESSES_H_
#define EXPORTER_OUTSIDE_HOST_PROCESSES_H_

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "metrics/snapshot.h"

namespace nccl_pulse::outside {

inline constexpr std::size_t kMostProcesses = 1024;  // with NCCL
inline constexpr std::size_t kMostMapsBytes = std::size_t{8} << 20;
inline constexpr std::size_t kMostEnvironBytes = std::size_t{1} << 20;
inline constexpr int kMostLost = 8;  // threads left behind

struct HostProcess {
  int32_t pid = 0;
  int32_t own_pid = 0;  // in its own PID namespace
  uid_t user = 0;
  uint64_t network = 0;  // inode of its network namespace; 0: that of this program, or not readable
  int64_t start_realtime_ns = 0;
  RunState state{};
  bool has_plugin = false;
  bool is_guess = false;     // on a GPU, and its maps can't be read
  std::string nccl_version;  // "2.28.9", if the library's file name has it
  // Variables of the environment; "": not set, or not readable.
  std::string global_rank, world_size, local_world_size, slurm_job_id;
  bool is_task_rank = false;  // rank and size are a task's of mpirun or srun; children inherit them
  std::string ras_address;
  bool is_ras_off = false;  // NCCL_RAS_ENABLE=0

  // True if NCCL is known to be older than 2.28.7: RAS has only text, which can crash the process.
  bool IsRasOld() const;
};

// Returns NCCL's number of a release such as "2.28.9": 22809; 0 if the text is no release.
int ReleaseOf(std::string_view text);

struct HostProcesses {
  std::vector<HostProcess> processes;  // in the order of their pids
  std::vector<HostProcess> unloaded;   // with a rank and a size, but without NCCL
  std::size_t unread = 0;              // processes whose files did not answer
};

// `pids`: limits the search to these processes, which are known to use a GPU and count even if
// their maps are not readable. Null: all processes of the host.
HostProcesses FindNcclProcesses(std::chrono::milliseconds patience,
                                const std::vector<int32_t>* pids = nullptr,
                                const std::string& proc = "/proc");

// True if all threads of the process are exiting: the driver may take minutes to release its GPU.
// False if there is no such process.
bool IsEnding(int32_t pid, const std::string& proc = "/proc");

}  // namespace nccl_pulse::outside

#endif  // EXPORTER_OUTSIDE_HOST_PROCESSES_H_
