// The fields of a line of /proc/PID/stat (proc(5)).
//
// Thread: any. Cost: one allocation. Errors: "" and 0 for what the line does not say.
#ifndef EXPORTER_BASE_PROC_STAT_H_
#define EXPORTER_BASE_PROC_STAT_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace nccl_pulse {

class ProcStat {
 public:
  explicit ProcStat(std::string line);
  ProcStat(const ProcStat&) = delete;
  ProcStat& operator=(const ProcStat&) = delete;

  // `number`: as proc(5) counts, from 3 on.
  std::string_view Field(std::size_t number) const;
  // Returns when the process began, in Unix time.
  int64_t StartRealtimeNs() const;

 private:
  const std::string line_;
  std::vector<std::string_view> fields_;  // behind the program's name, which may contain anything
};

}  // namespace nccl_pulse

#endif  // EXPORTER_BASE_PROC_STAT_H_
