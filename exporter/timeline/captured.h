// Reads what `pulse capture` has kept, a folder or a .tar.gz, for the timeline.
//
// Captures may come from somewhere else: names, sizes and content are checked, and at most 512 MiB
// are read. A file of it that is broken is left out, and said so in the notes.
//
// Thread: the caller's; blocks. Memory: of all its files at once, if it is a .tar.gz.
#ifndef EXPORTER_TIMELINE_CAPTURED_H_
#define EXPORTER_TIMELINE_CAPTURED_H_

#include <string>

#include "exporter/timeline/observation.h"

namespace nccl_pulse {

// False when it cannot be read, or is no capture: `error` says what is wrong, for a person.
bool ReadCapture(const std::string& path, Observation* seen, std::string* error);

}  // namespace nccl_pulse

#endif  // EXPORTER_TIMELINE_CAPTURED_H_
