// The folder in which an agent keeps captures that it takes by itself: their names, and which of
// them give way. Agents of several hosts may share one: host and port are in the names, and only
// what this user wrote under this agent's own is ever looked at or removed.
//
//   nccl-pulse-auto-node7-9410-20261122-221500.tar.gz              a capture
//   nccl-pulse-auto-node7-9410-20261122-221500-2.tar.gz            another one of that second
//   nccl-pulse-auto-node7-9410-20261122-221500.tar.gz.partial-17   one that was not finished
//   nccl-pulse-auto-20261122-221500.tar.gz                         the first form, which names no
//                                                                  agent: everybody's own
//
// Thread: one. Cost: reads the folder.
#ifndef EXPORTER_CAPTURE_CAPTURE_FOLDER_H_
#define EXPORTER_CAPTURE_CAPTURE_FOLDER_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace nccl_pulse {

struct CaptureLimits {
  std::size_t captures = 8;  // of one agent
  uint64_t bytes =
      uint64_t{256} << 20;  // of all of them; one may have a quarter, before it is packed
};

struct CaptureFolder {
  std::string path;
  // Of the agent, the same after a restart (NodeName). Of the host's name letters, digits, '.', '-'
  // and '_' stand in names of files.
  std::string host;
  uint16_t port = 0;
};

// True for the name of a capture that this agent took by itself.
bool IsOwnCapture(const CaptureFolder& folder, std::string_view name);

// The path of one that is taken now; another number stands behind the time where one exists.
std::string NewCapturePath(const CaptureFolder& folder, int64_t now_realtime_ns);

// Removes the oldest own captures until the rest is within the limits; the newest stays in any
// case.
void RemoveOldCaptures(const CaptureFolder& folder, const CaptureLimits& limits);

// Removes what earlier agents of this host and port have not finished: where no process has the pid
// in the name.
void RemovePartialCaptures(const CaptureFolder& folder);

}  // namespace nccl_pulse

#endif  // EXPORTER_CAPTURE_CAPTURE_FOLDER_H_
