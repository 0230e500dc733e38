// HangFlags are the flags of `pulse watch` and `pulse agent` for a program to run on a hang.
//
// Thread: main thread.
#ifndef EXPORTER_CLI_FLAGS_HANG_FLAGS_H_
#define EXPORTER_CLI_FLAGS_HANG_FLAGS_H_

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "exporter/cli/flags/flags.h"
#include "exporter/watch/hang_program.h"

namespace nccl_pulse {

struct HangFlags {
  std::string program;  // --on-hang: absolute path; "": none
  // --on-hang-after: age of the hang at the start; -pause: least time between two starts for a job;
  // -timeout: limit for the program.
  absl::Duration after, pause = absl::Minutes(10), timeout = absl::Minutes(1);
  bool as_root = false;  // --on-hang-as-root: start the program even as root
};

FlagTable HangProgramFlags(HangFlags* flags);

// Sets `options->path` to "" without --on-hang. On failure returns false and sets `error`.
bool ReadHangFlags(const HangFlags& flags, HangProgram::Options* options, std::string* error);

}  // namespace nccl_pulse

#endif  // EXPORTER_CLI_FLAGS_HANG_FLAGS_H_
