// The folder in which an agent keeps captures that it takes by itself: their names, and which of
// them give way. Only what this user wrote under such a name is ever removed.
//
//   nccl-pulse-auto-20261122-221500.tar.gz              a capture
//   nccl-pulse-auto-20261122-221500.tar.gz.partial-17   one that was not finished
//
// Thread: one. Cost: reads the folder.
#ifndef EXPORTER_FLEET_CAPTURE_FOLDER_H_
#define EXPORTER_FLEET_CAPTURE_FOLDER_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace nccl_pulse {

struct CaptureLimits {
  std::size_t captures = 8;  // in the folder
  uint64_t bytes =
      uint64_t{256} << 20;  // of all of them; one may have a quarter, before it is packed
};

// Whether this is the name of a capture that an agent took by itself.
bool IsAutomaticCapture(std::string_view name);

// The path of one that is taken now; another number stands behind the time where one exists.
std::string NewCapturePath(const std::string& folder, int64_t now_realtime_ns);

// Removes the oldest captures until the rest is within the limits; the newest stays in any case.
void RemoveOldCaptures(const std::string& folder, const CaptureLimits& limits);

// Removes what earlier agents have not finished: where no process has the pid in the name.
void RemovePartialCaptures(const std::string& folder);

}  // namespace nccl_pulse

#endif  // EXPORTER_FLEET_CAPTURE_FOLDER_H_
