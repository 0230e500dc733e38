// Whether the flags of a command line belong to the command, before absl parses them: absl knows
// the flags of all commands, and says little of what is wrong.
//
// Thread: main thread. Cost: some searches in a text.
#ifndef EXPORTER_CLI_FLAG_CHECK_H_
#define EXPORTER_CLI_FLAG_CHECK_H_

#include <string>
#include <string_view>
#include <vector>

namespace nccl_pulse {

// "--web-config" and so on, in their order: every flag that `help` names.
std::vector<std::string> FlagsIn(std::string_view help);

// What of `candidates` was meant with `written`; "": nothing is like it.
std::string Nearest(std::string_view written, const std::vector<std::string>& candidates);

// What is wrong with this argument of `command`, whose help names its flags; "": nothing, as far as
// can be seen here. `next` is the argument behind it, which may be its value. Durations must have a
// unit, and --watch has none.
std::string CheckFlag(std::string_view argument, std::string_view next, std::string_view command,
                      std::string_view help);

}  // namespace nccl_pulse

#endif  // EXPORTER_CLI_FLAG_CHECK_H_
