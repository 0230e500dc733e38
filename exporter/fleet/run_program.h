// Runs a program and returns what it prints, within a time limit and a size limit.
//
// Thread: any; blocks. The program gets no standard input, and leads a process group of its own,
// which is ended when its time is over. What does not end by that is left to itself within a second:
// a program that hangs in a driver, or of another user. Errors: what went wrong, for a person.
#ifndef EXPORTER_FLEET_RUN_PROGRAM_H_
#define EXPORTER_FLEET_RUN_PROGRAM_H_

#include <chrono>
#include <string>
#include <vector>

namespace nccl_pulse {

struct ProgramOutput {
  std::string text;   // standard output and error, as far as there is room
  std::string error;  // "": it ended with status 0
};
ProgramOutput RunProgram(const std::vector<std::string>& arguments,
                         std::chrono::milliseconds patience);

}  // namespace nccl_pulse

#endif  // EXPORTER_FLEET_RUN_PROGRAM_H_
