// Numbers, times and names as people read them, the same in every sentence and table.
//
// Thread: any, no state.
#ifndef EXPORTER_DIAGNOSIS_WORDS_WORDS_H_
#define EXPORTER_DIAGNOSIS_WORDS_WORDS_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "metrics/snapshot.h"

namespace nccl_pulse {

std::string DurationWords(int64_t ns);     // whole seconds and more: "43 s", "9 min", "2 h 5 min"
std::string ShareWords(double share);      // "0.3 %", "32 %"
std::string SecondsWords(double seconds);  // to three digits: "12.3 us", "4 min 3 s"

// A line for each row, with the cells below each other. Cut off at `width`, 0: at none.
std::string AlignedRows(const std::vector<std::vector<std::string>>& rows, std::size_t width = 0);

// A process' number, as a person can use it. Containers count from 1, so what a process says of
// itself may be another process' number on its host, the system's first one for example.

// Returns the pid in the system's own PID namespace, for commands on its host; 0: not known.
inline int32_t HostPid(const ProcessSnapshot& process) {
  if (process.pid_namespace == 0) return process.pid;
  return process.seen_in == 0 ? process.seen_pid : 0;
}

// As who serves its node sees it: "4711"; else "1 in its container".
inline std::string PidWords(const ProcessSnapshot& process) {
  if (process.seen_pid > 0) return absl::StrCat(process.seen_pid);
  return absl::StrCat(process.pid, process.pid_namespace == 0 ? "" : " in its container");
}

// The same, for a table: "1@4026532178", with the PID namespace in which the number counts.
inline std::string PidCell(const ProcessSnapshot& process) {
  if (process.seen_pid > 0 || process.pid_namespace == 0) return PidWords(process);
  return absl::StrCat(process.pid, "@", process.pid_namespace);
}

}  // namespace nccl_pulse

#endif  // EXPORTER_DIAGNOSIS_WORDS_WORDS_H_
