// The text of a recorded trace: a .jsonl file, or one compressed with xz (.jsonl.xz), which the
// program xz unpacks.
//
// Thread: any. Cost: the whole text in memory (a few MB for the recorded ones).
#ifndef BENCH_REPLAY_TRACE_FILE_H_
#define BENCH_REPLAY_TRACE_FILE_H_

#include <optional>
#include <string>
#include <vector>

#include "bench/replay/replay_error.h"

namespace nccl_pulse {

// Nothing, with kReplayNoFolder (cannot be read) or kReplayBrokenTrace (not a whole xz stream) in
// `error`.
std::optional<std::string> ReadTraceText(const std::string& path, ReplayError* error);

// The trace files of a folder (*.jsonl, *.jsonl.xz), sorted by name: one per recorded process.
// Nothing, with kReplayNoFolder (no such folder, or not a folder) or kReplayNoTrace (none in it) in
// `error`.
std::optional<std::vector<std::string>> ListTraceFiles(const std::string& folder,
                                                       ReplayError* error);

}  // namespace nccl_pulse

#endif  // BENCH_REPLAY_TRACE_FILE_H_
