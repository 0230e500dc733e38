// What one process measures with: its settings, its clock, its segment, and the tracker that writes
// into the segment. The first init makes it, and nothing destroys it.
//
// Thread: Make and the Write functions under the lock of init (init_lock.h); RenewTimes from Make
// and then from the background thread.
#ifndef PLUGIN_RUNTIME_PROCESS_H_
#define PLUGIN_RUNTIME_PROCESS_H_

#include <memory>
#include <string>

#include "metrics/atomic_cell.h"
#include "metrics/segment.h"
#include "plugin/cuda/cuda_driver.h"
#include "plugin/runtime/event_masks.h"
#include "plugin/runtime/init_arguments.h"
#include "plugin/runtime/log.h"
#include "plugin/runtime/settings.h"
#include "plugin/tracker/clock.h"
#include "plugin/tracker/tracker.h"

namespace nccl_pulse {

struct Process {
  // Null when there is no memory for a segment. What is wrong has been logged then.
  static std::unique_ptr<Process> Make(const InitArguments& arguments);

  // Writes the threshold for a hang, from the settings or set since. Init, then the background thread.
  void StoreHangSeconds(int seconds);
  // Brings the segment's clock offset and the time of the last poll up to date.
  void RenewTimes();
  // Writes what durations and completions come from, as an NCCL of this version gives them. The
  // caller passes the newest one of the process: it gets the best that there is.
  void WriteSources(int api_version);
  // For the log: what is measured of an NCCL of this version.
  std::string Capabilities(int api_version) const;

  Settings settings;
  Log log;
  Clock clock;
  std::unique_ptr<Segment> segment;
  std::unique_ptr<Tracker> tracker;
  EventMasks masks;
  const CudaDriver* driver = nullptr;

 private:
  bool FollowsStreams() const { return driver != nullptr && tracker->has_sight(); }
  void WriteIdentity(const InitArguments& arguments);
};

}  // namespace nccl_pulse

#endif  // PLUGIN_RUNTIME_PROCESS_H_
