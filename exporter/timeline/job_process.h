// JobProcess is a process of a watched job, as its endpoint describes it.
#ifndef EXPORTER_TIMELINE_JOB_PROCESS_H_
#define EXPORTER_TIMELINE_JOB_PROCESS_H_

#include <cstddef>
#include <cstdint>
#include <string>

namespace nccl_pulse {

struct JobProcess {
  std::size_t endpoint = 0;  // index among the job's endpoints
  std::string hostname;
  int64_t pid = 0;             // as the process itself sees it
  uint32_t pid_namespace = 0;  // inode of the namespace of `pid`; 0: the host's own, or not known
};

}  // namespace nccl_pulse

#endif  // EXPORTER_TIMELINE_JOB_PROCESS_H_
