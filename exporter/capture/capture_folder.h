// CaptureFolder names the automatic captures in an agent's folder, and removes old ones. Agents of
// several hosts may share it. An agent only reads and removes its own files: of its user, with its
// host and port in the name.
//
//   nccl-pulse-auto-node7-9410-20261122-221500.tar.gz              a capture
//   nccl-pulse-auto-node7-9410-20261122-221500-2.tar.gz            the next one in the same second
//   nccl-pulse-auto-node7-9410-20261122-221500.tar.gz.partial-17   an unfinished one
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
  std::size_t captures = 8;  // per agent
  // Limit of all together. One capture may collect a quarter of it before compression.
  uint64_t bytes = uint64_t{256} << 20;
};

struct CaptureFolder {
  std::string path;
  // The agent's host, the same after a restart (NodeName). File names keep its letters, digits,
  // '.', '-' and '_'.
  std::string host;
  uint16_t port = 0;
};

// True for the name of an automatic capture of this agent.
bool IsOwnCapture(const CaptureFolder& folder, std::string_view name);

// Returns the path of a new capture, with a number after the time if that name exists.
std::string NewCapturePath(const CaptureFolder& folder, int64_t now_realtime_ns);

// Removes the oldest own captures until the rest is within the limits. Always keeps the newest.
void RemoveOldCaptures(const CaptureFolder& folder, const CaptureLimits& limits);

// Removes own unfinished captures whose pid in the name belongs to no process, or to this one.
void RemovePartialCaptures(const CaptureFolder& folder);

}  // namespace nccl_pulse

#endif  // EXPORTER_CAPTURE_CAPTURE_FOLDER_H_
