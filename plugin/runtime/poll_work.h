// What the background threads do in each of their rounds. "pulse-poll" follows launches, keeps the
// segment's times and memory up to date, settles operations, watches the event masks, and does what
// commands ask for (live_control.h). "pulse-work" reads NCCL's own counters of finished work, where
// that is asked for.
//
// Thread: Start under the lock of init; ReadCounters on "pulse-work", the rest on "pulse-poll"
// (poller.h).
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

  // Starts the threads, which use this object for the life of the process. Where the first cannot
  // be started the segment says so; `logger` gets a warning of each.
  void Start(abi::DebugLogger logger);

 private:
  void RelaxCaptures();
  int Round();         // returns how many milliseconds to pause
  int ReadCounters();  // likewise
  void LoseSight(PollerState why);
  void MakeRoom();
  void WatchNetwork(uint64_t now_ns);
  void WatchMasks();
  void WarnOfRefuted();
  void WatchDescriptors();
  void RenewQueries();

  Process& process_;
  LiveControl control_;
  uint64_t housekeeping_ns_ = 0;  // when last
  uint64_t adapted_ns_ = 0;       // when last
  int counter_warnings_ = 0;
  bool mask_warning_given_ = false;
  bool descriptor_warning_given_ = false;
};

}  // namespace nccl_pulse

#endif  // PLUGIN_RUNTIME_POLL_WORK_H_
