// Splits a line of /proc/PID/stat into its fields (proc(5)).
//
// Thread: any. Cost: one allocation. Errors: "" and 0 for missing fields.
#ifndef EXPORTER_BASE_PROC_STAT_H_
#define EXPORTER_BASE_PROC_STAT_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "metrics/snapshot.h"

namespace nccl_pulse {

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

}  // namespace nccl_pulse

#endif  // EXPORTER_BASE_PROC_STAT_H_
