// A file that is there as a whole or not at all. What exists is never written over; what is no
// plain file (a pipe, /dev/stdout) is written to.
//
// Thread: any. Errors: `error` says what went wrong, for a person; nothing is left behind then.
#ifndef EXPORTER_TIMELINE_TRACE_FILE_H_
#define EXPORTER_TIMELINE_TRACE_FILE_H_

#include <string>

namespace nccl_pulse {

// Whether WriteWhole could begin now: before anybody is asked.
bool CanWriteWhole(const std::string& path, std::string* error);
// What else is said to the standard output would be mixed with the file.
bool IsStandardOutput(const std::string& path);
bool WriteWhole(const std::string& path, const std::string& content, std::string* error);

}  // namespace nccl_pulse

#endif  // EXPORTER_TIMELINE_TRACE_FILE_H_
