// Formats numbers, times and names for people, for all sentences and tables.
//
// Thread: any, no state.
#ifndef EXPORTER_DIAGNOSIS_WORDS_WORDS_H_
#define EXPORTER_DIAGNOSIS_WORDS_WORDS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "metrics/snapshot.h"

namespace nccl_pulse {

// Returns "1 rank", "2 ranks", "2 processes", or "2 " and `several` if that is given.
inline std::string Plural(std::size_t count, std::string_view one, std::string_view several = "") {
  if (count == 1 || !several.empty()) return absl::StrCat(count, " ", count == 1 ? one : several);
  return absl::StrCat(count, " ", one, absl::EndsWith(one, "s") ? "es" : "s");
}

std::string DurationWords(int64_t ns);  // to the second: "43 s", "9 min", "2 h 5 min"
std::string ShareWords(double share);   // "0.3 %", "32 %"
// Returns a share of a moving window: "32 % of the last 20 s".
std::string ShareWords(double share, int64_t window_seconds);
std::string SecondsWords(double seconds);  // to three digits: "12.3 us", "4 min 3 s"

// Returns one line per row, in aligned columns. Cuts lines at `width`; 0: unlimited.
std::string AlignedRows(const std::vector<std::vector<std::string>>& rows, std::size_t width = 0);

// Pids are only valid in their PID namespace: in a container they start from 1, so a process' own
// pid may belong to another process on its host.

// Returns the pid in the system's own PID namespace, for commands on its host; 0: not known.
inline int32_t HostPid(const ProcessSnapshot& process) {
  if (process.pid_namespace == 0) return process.pid;
  return process.seen_in == 0 ? process.seen_pid : 0;
}

// Returns the pid as the node's server sees it, "4711", or else "1 in its container".
inline std::string PidWords(const ProcessSnapshot& process) {
  if (process.seen_pid > 0) return absl::StrCat(process.seen_pid);
  return absl::StrCat(process.pid, process.pid_namespace == 0 ? "" : " in its container");
}

// Returns the pid for a table, if necessary with its PID namespace: "1@4026532178".
inline std::string PidCell(const ProcessSnapshot& process) {
  if (process.seen_pid > 0 || process.pid_namespace == 0) return PidWords(process);
  return absl::StrCat(process.pid, "@", process.pid_namespace);
}

}  // namespace nccl_pulse

#endif  // EXPORTER_DIAGNOSIS_WORDS_WORDS_H_
