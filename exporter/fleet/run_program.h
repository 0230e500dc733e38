// Runs a program and returns what it prints, within a time limit and a size limit.
//
// Thread: any; blocks. The program reads `input`, and leads a process group of its own,
// which is ended when its time is over. It ends when the program does: a child that it leaves behind
// runs on, even with the output open. What does not end by that is left to itself within a
// second: a program that hangs in a driver, or of another user. Its signals are as in a shell,
// whatever this process ignores or blocks. A start that does not end in time, because the program's
// file system does not answer, is left to a thread of its own. Errors: what went wrong, for a
// person.
#ifndef EXPORTER_FLEET_RUN_PROGRAM_H_
#define EXPORTER_FLEET_RUN_PROGRAM_H_

#include <sys/types.h>

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

namespace nccl_pulse {

struct ProgramOutput {
  std::string text;   // standard output and error, as far as there is room
  std::string error;  // "": it ended with status 0
};
ProgramOutput RunProgram(const std::vector<std::string>& arguments,
                         std::chrono::milliseconds patience, std::string_view input = "");

// Reaps processes that RunProgram's programs left behind and that have ended. They become children of
// this process if it is process 1 of a container.
void ReapOrphans();

// Starts a program with `input` as its standard input, `output` as its standard output and error,
// and with its own process group. 0, or an errno. For tests: one that hangs.
using Spawner = int (*)(const std::vector<std::string>& arguments, int input, int output,
                        pid_t* child);
ProgramOutput RunProgram(const std::vector<std::string>& arguments,
                         std::chrono::milliseconds patience, std::string_view input, Spawner spawn);

}  // namespace nccl_pulse

#endif  // EXPORTER_FLEET_RUN_PROGRAM_H_
