// RunProgram runs a program and returns its output, within a time limit and a size limit.
//
// The program leads its own process group, which is killed at the time limit. RunProgram returns
// when the program ends, even if a child of it still has the output open. A killed program that
// does not end within a second (it hangs in a driver, or belongs to another user) is left behind.
// The program starts with no signal blocked, and with default handling of SIGPIPE, SIGXFSZ and
// SIGCHLD, whatever this process blocks or ignores. If it cannot be started in time, because its
// file system does not answer, a separate thread is left behind that waits for it.
//
// Thread: any; blocks. Errors: a sentence for a person.
#ifndef EXPORTER_FLEET_RUN_PROGRAM_H_
#define EXPORTER_FLEET_RUN_PROGRAM_H_

#include <sys/types.h>

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

namespace nccl_pulse {

struct ProgramOutput {
  std::string text;   // standard output and error, up to the size limit
  std::string error;  // "": it ended with status 0
};
// `input`: the program's standard input.
ProgramOutput RunProgram(const std::vector<std::string>& arguments,
                         std::chrono::milliseconds patience, std::string_view input = "");

// Reaps orphans: ended processes that RunProgram's programs started, and that outlived them. They
// are children of this process if it is process 1 of a container.
void ReapOrphans();

// Starts a program with `input` as its standard input, `output` as its standard output and error,
// and its own process group. Returns 0 or an errno. Replaced in tests.
using Spawner = int (*)(const std::vector<std::string>& arguments, int input, int output,
                        pid_t* child);
ProgramOutput RunProgram(const std::vector<std::string>& arguments,
                         std::chrono::milliseconds patience, std::string_view input, Spawner spawn);

}  // namespace nccl_pulse

#endif  // EXPORTER_FLEET_RUN_PROGRAM_H_
