// The text of a recorded trace: a .jsonl file, or one compressed with xz (.jsonl.xz).
//
// Thread: any. Cost: the whole text in memory (a few MB for the recorded ones).
#ifndef PLUGIN_REPLAY_TRACE_FILE_H_
#define PLUGIN_REPLAY_TRACE_FILE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace nccl_pulse {

// Errors: NotFound or PermissionDenied (cannot be opened), DataLoss (not a whole xz stream).
absl::StatusOr<std::string> ReadTraceText(const std::string& path);

// The trace files of a folder (*.jsonl, *.jsonl.xz), sorted by name: one per recorded process.
// Errors: NotFound (no such folder, or not a folder), FailedPrecondition (no trace file in it).
absl::StatusOr<std::vector<std::string>> ListTraceFiles(const std::string& folder);

}  // namespace nccl_pulse

#endif  // PLUGIN_REPLAY_TRACE_FILE_H_
