// LookAtDumps diagnoses a job from dumps of PyTorch's Flight Recorder, as LookAtJob (job_look.h)
// does from endpoints, for `pulse diagnose --flight-recorder`.
//
// Thread: the caller's; blocks while it reads files. Memory: all calls in the dumps.
#ifndef EXPORTER_FLEET_DUMP_LOOK_H_
#define EXPORTER_FLEET_DUMP_LOOK_H_

#include <string>

#include "exporter/fleet/job_look.h"

namespace nccl_pulse {

// `path`: a folder, or a folder and the beginning of the dumps' names. On failure, or if there is
// no dump, returns false and sets `error`.
bool LookAtDumps(const std::string& path, JobLook* look, std::string* error);

}  // namespace nccl_pulse

#endif  // EXPORTER_FLEET_DUMP_LOOK_H_
