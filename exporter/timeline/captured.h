// ReadCapture reads the output of `pulse capture`, a folder or a .tar.gz, for the timeline.
//
// Captures are untrusted: names, sizes and content are checked, and at most 512 MiB are read. A
// broken file is left out and listed in the notes.
//
// Thread: the caller's; blocks. Memory: the files; of a .tar.gz meanwhile also the whole archive.
#ifndef EXPORTER_TIMELINE_CAPTURED_H_
#define EXPORTER_TIMELINE_CAPTURED_H_

#include <string>

#include "exporter/timeline/observation.h"

namespace nccl_pulse {

// Returns false if the file cannot be read, or is no capture; `error` is then a readable sentence.
bool ReadCapture(const std::string& path, Observation* seen, std::string* error);

}  // namespace nccl_pulse

#endif  // EXPORTER_TIMELINE_CAPTURED_H_
