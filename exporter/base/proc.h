// Reads /proc: files, the state and the cgroup of a process, and the calling process' resource
// usage. Source: proc(5).
//
// Thread: any. Cost: some system calls. Errors: "" and 0 for what can't be read.
#ifndef EXPORTER_BASE_PROC_H_
#define EXPORTER_BASE_PROC_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "metrics/snapshot.h"

namespace nccl_pulse {

// Returns up to `most` bytes of the file at `path`.
std::string ReadFile(const std::string& path, std::size_t most = 65536);

// Returns up to `most` bytes of the file `name` in the folder with descriptor `folder`; does not
// follow links. Holds no ForkGuard, because reading may block: a child that is forked meanwhile
// inherits the descriptor. If the file cannot be opened, errno has the reason.
std::string ReadFileAt(int folder, const char* name, std::size_t most);

// Returns up to `most` bytes of an open file, from its offset.
std::string ReadUpTo(int fd, std::size_t most);

// Splits a line of /proc/PID/stat into its fields.
class ProcStat {
 public:
  explicit ProcStat(std::string line);
  ProcStat(const ProcStat&) = delete;
  ProcStat& operator=(const ProcStat&) = delete;

  // Returns a field by its number in proc(5), from 3 on.
  std::string_view Field(std::size_t number) const;
  // Returns the process' state; kUnknown if the line does not have it.
  RunState State() const;
  // Returns the process' start time, in Unix time.
  int64_t StartRealtimeNs() const;

 private:
  const std::string line_;
  std::vector<std::string_view> fields_;  // from the third field on
};

// Returns the lines of `cgroup` in a process' folder of /proc, and those of its cgroup.events, such
// as "frozen 1". `root`: where cgroup2 is mounted. The path is safe to open: the kernel names the
// cgroup, and cgroup2 has no links.
std::string CgroupText(int folder, const std::string& root);
// Returns the run state in `stat`, or kFrozen. `folder`, `root`: see CgroupText.
RunState RunStateIn(const ProcStat& stat, int folder, const std::string& root);

// The process_* values of Prometheus' client libraries. Values that the kernel does not report are
// 0.
struct ProcessUse {
  double start_seconds = 0;  // Unix time, the same at each call
  double cpu_seconds = 0;
  double resident_bytes = 0;
  double virtual_bytes = 0;
  double open_files = 0;
  double most_files = 0;  // RLIMIT_NOFILE
};

// Costs a dozen system calls; before Linux 6.2 one more per 200 open files.
ProcessUse ReadProcessUse();

}  // namespace nccl_pulse

#endif  // EXPORTER_BASE_PROC_H_
