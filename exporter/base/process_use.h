// Reads the calling process' resource usage: the process_* values of Prometheus' client libraries.
//
// Thread: any. Cost: a dozen system calls; before Linux 6.2 one more per 200 open files. Source:
// proc(5).
#ifndef EXPORTER_BASE_PROCESS_USE_H_
#define EXPORTER_BASE_PROCESS_USE_H_

namespace nccl_pulse {

// Values that the kernel does not report are 0.
struct ProcessUse {
  double start_seconds = 0;  // Unix time, the same at each call
  double cpu_seconds = 0;
  double resident_bytes = 0;
  double virtual_bytes = 0;
  double open_files = 0;
  double most_files = 0;  // RLIMIT_NOFILE
};

ProcessUse ReadProcessUse();

}  // namespace nccl_pulse

#endif  // EXPORTER_BASE_PROCESS_USE_H_
