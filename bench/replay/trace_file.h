// Reads recorded traces: .jsonl files, or .jsonl.xz, which the program xz decompresses.
//
// Thread: any. Cost: the whole text in memory (a few MB for the recorded ones).
#ifndef BENCH_REPLAY_TRACE_FILE_H_
#define BENCH_REPLAY_TRACE_FILE_H_

#include <optional>
#include <string>
#include <vector>

#include "bench/replay/replay_error.h"

namespace nccl_pulse {

// Returns nothing, with kReplayNoFolder (cannot be read) or kReplayBrokenTrace (not a complete xz
// stream, or no xz program) in `error`, on failure.
std::optional<std::string> ReadTraceText(const std::string& path, ReplayError* error);

// Returns the trace files of a folder (*.jsonl, *.jsonl.xz), sorted by name: one per recorded
// process. Returns nothing, with kReplayNoFolder (not a folder) or kReplayNoTrace (none in it) in
// `error`, on failure.
std::optional<std::vector<std::string>> ListTraceFiles(const std::string& folder,
                                                       ReplayError* error);

}  // namespace nccl_pulse

#endif  // BENCH_REPLAY_TRACE_FILE_H_
