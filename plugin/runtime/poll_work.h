// PollWork implements the rounds of the two background threads (poller.h). "pulse-poll" queries the
// CUDA events behind launches, updates the segment's times and memory, closes operations that have
// ended, watches the event masks and executes commands (live_control.h). "pulse-work" reads NCCL's
// counters of finished work, if NCCL_PULSE_WORK_COUNTERS is on.
//
// Thread: Start under the lock of init; ReadCounters on "pulse-work", the rest on "pulse-poll".
// Errors: nothing here throws.
#ifndef PLUGIN_RUNTIME_POLL_WORK_H_
#define PLUGIN_RUNTIME_POLL_WORK_H_

#include <cstdint>

#include "metrics/kinds.h"
#include "plugin/runtime/live_control.h"
#include "plugin/runtime/process.h"

namespace nccl_pulse {

class PollWork {
 public:
  explicit PollWork(Process* process) : process_(*process), control_(process) {}
  PollWork(const PollWork&) = delete;
  PollWork& operator=(const PollWork&) = delete;

  // Starts the threads. They use this object until the process ends. If a thread cannot be started,
  // `logger` gets a warning; for "pulse-poll" the segment's PollerState also says so.
  void Start(abi::DebugLogger logger);

 private:
  void RelaxCaptures();
  // One round of each thread. They return the pause in milliseconds.
  int Round();
  int ReadCounters();
  void LoseSight(PollerState why);
  void MakeRoom();
  void WatchNetwork(uint64_t now_ns);
  void MonitorMasks();
  void WarnOfRefuted();
  void WatchDescriptors();
  void RenewQueries();

  Process& process_;
  LiveControl control_;
  uint64_t housekeeping_ns_ = 0;  // time of the last housekeeping
  uint64_t adapted_ns_ = 0;       // time of the sampler's last adaptation
  int counter_warnings_ = 0;
  bool mask_warning_given_ = false;
  bool descriptor_warning_given_ = false;
};

}  // namespace nccl_pulse

#endif  // PLUGIN_RUNTIME_POLL_WORK_H_
