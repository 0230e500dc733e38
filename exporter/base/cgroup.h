// CgroupText reads which cgroup a process is in, and whether cgroup2 has frozen it.
//
// Thread: any. Cost: two small files. Errors: "" if they can't be read.
#ifndef EXPORTER_BASE_CGROUP_H_
#define EXPORTER_BASE_CGROUP_H_

#include <string>
#include <string_view>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "exporter/base/read_file.h"

namespace nccl_pulse {

// Returns the lines of `cgroup` in a process' folder of /proc, and those of its cgroup.events, such
// as "frozen 1". `root`: where cgroup2 is mounted. The kernel names the cgroup, and cgroup2 has no
// links.
inline std::string CgroupText(int folder, const std::string& root) {
  const std::string cgroups = ReadFileAt(folder, "cgroup", 4096);
  for (std::string_view line : absl::StrSplit(cgroups, '\n')) {
    if (!absl::ConsumePrefix(&line, "0::") || absl::StrContains(line, "..")) continue;
    return absl::StrCat(cgroups, ReadFile(absl::StrCat(root, line, "/cgroup.events")));
  }
  return cgroups;
}

}  // namespace nccl_pulse

#endif  // EXPORTER_BASE_CGROUP_H_
