// Process holds a process' settings, clock and segment, and the tracker that writes to the segment.
// The first init creates it. It is never destroyed.
//
// Thread: Make and the Write functions under the lock of init (init_lock.h); RenewTimes from Make,
// then from the background thread.
#ifndef PLUGIN_RUNTIME_PROCESS_H_
#define PLUGIN_RUNTIME_PROCESS_H_

#include <memory>
#include <string>

#include "metrics/atomic_cell.h"
#include "metrics/segment.h"
#include "plugin/cuda/cuda_driver.h"
#include "plugin/runtime/event_masks.h"
#include "plugin/runtime/log.h"
#include "plugin/runtime/settings.h"
#include "plugin/tracker/clock.h"
#include "plugin/tracker/tracker.h"

namespace nccl_pulse {

struct InitArguments;  // runtime.h

struct Process {
  // Returns null if there is no memory for a segment, which is logged.
  static std::unique_ptr<Process> Make(const InitArguments& arguments);

  // Writes the hang threshold. Called from init, then from the background thread after `pulse set`.
  void StoreHangSeconds(int seconds);
  // Updates the segment's clock offset and the time of the last poll.
  void RenewTimes();
  // Writes the sources of durations and completions that NCCL's API version allows. If the process
  // has several versions, pass the newest, which has the best sources.
  void WriteSources(int api_version);
  // Returns the log's description of the measurements with an NCCL of this version.
  std::string Capabilities(int api_version) const;

  Settings settings;
  Log log;
  Clock clock;
  std::unique_ptr<Segment> segment;
  std::unique_ptr<Tracker> tracker;
  EventMasks masks;
  const CudaDriver* driver = nullptr;  // null: there is none

 private:
  bool FollowsStreams() const { return driver != nullptr && tracker->has_sight(); }
  void WriteIdentity(const InitArguments& arguments);
};

}  // namespace nccl_pulse

#endif  // PLUGIN_RUNTIME_PROCESS_H_
