// WriteWhole writes a file completely or not at all. It never overwrites a file; it writes into a
// pipe or /dev/stdout.
//
// Thread: any. Errors: `error` is a readable sentence; nothing is left behind then.
#ifndef EXPORTER_TIMELINE_TRACE_FILE_H_
#define EXPORTER_TIMELINE_TRACE_FILE_H_

#include <string>

namespace nccl_pulse {

// True if WriteWhole could begin now. Call before querying endpoints.
bool CanWriteWhole(const std::string& path, std::string* error);
// True if other output to standard output would be mixed with the file.
bool IsStandardOutput(const std::string& path);
bool WriteWhole(const std::string& path, const std::string& content, std::string* error);

}  // namespace nccl_pulse

#endif  // EXPORTER_TIMELINE_TRACE_FILE_H_
