// Completions returns shell completions for `pulse ...`. deploy/package/completions runs `pulse
// complete WORDS`, so that bash, zsh and fish offer the flags that commands have.
//
// Thread: main thread. Cost: reads the flags of one command.
#ifndef EXPORTER_CLI_COMPLETION_H_
#define EXPORTER_CLI_COMPLETION_H_

#include <string>
#include <vector>

#include "exporter/cli/command.h"

namespace nccl_pulse {

// `words`: the words after "pulse", up to the cursor. The last word is completed, and may be "".
// Returns nothing for file names, addresses and numbers.
std::vector<std::string> Completions(const std::vector<const Command*>& commands,
                                     const std::vector<std::string>& words);

}  // namespace nccl_pulse

#endif  // EXPORTER_CLI_COMPLETION_H_
