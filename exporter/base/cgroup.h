// Reads which cgroup a process is in, and whether cgroup2 has frozen it.
//
// Thread: any. Cost: two small files. Errors: files that can't be read count as empty.
#ifndef EXPORTER_BASE_CGROUP_H_
#define EXPORTER_BASE_CGROUP_H_

#include <string>
#include <string_view>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "exporter/base/proc_stat.h"
#include "exporter/base/read_file.h"
#include "metrics/snapshot.h"

namespace nccl_pulse {

// Returns the lines of `cgroup` in a process' folder of /proc, and those of its cgroup.events, such
// as "frozen 1". `root`: where cgroup2 is mounted. The path is safe to open: the kernel names the
// cgroup, and cgroup2 has no links.
inline std::string CgroupText(int folder, const std::string& root) {
  std::string cgroups = ReadFileAt(folder, "cgroup", 4096);
  for (std::string_view line : absl::StrSplit(cgroups, '\n')) {
    if (!absl::ConsumePrefix(&line, "0::") || absl::StrContains(line, "..")) continue;
    return absl::StrCat(cgroups, ReadFile(absl::StrCat(root, line, "/cgroup.events")));
  }
  return cgroups;
}

// Returns the run state in `stat`, or kFrozen. `folder`, `root`: see CgroupText.
inline RunState RunStateIn(const ProcStat& stat, int folder, const std::string& root) {
  const RunState state = stat.State();
  const bool may_run = state == RunState::kRunning || state == RunState::kUninterruptible;
  const bool is_frozen = may_run && absl::StrContains(CgroupText(folder, root), "\nfrozen 1\n");
  return is_frozen ? RunState::kFrozen : state;
}

}  // namespace nccl_pulse

#endif  // EXPORTER_BASE_CGROUP_H_
