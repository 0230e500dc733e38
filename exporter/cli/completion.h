// What a shell offers when somebody presses the tabulator behind `pulse ...`:
// deploy/package/completions asks `pulse complete WORDS` for it, so that bash, zsh and fish offer
// the flags that commands have.
//
// Thread: main thread. Cost: reads the flags of one command.
#ifndef EXPORTER_CLI_COMPLETION_H_
#define EXPORTER_CLI_COMPLETION_H_

#include <string>
#include <vector>

#include "exporter/cli/command.h"

namespace nccl_pulse {

// `words`: those behind "pulse" up to the cursor; the last is to be completed and may be "".
// Nothing is offered where names of files, addresses or numbers belong.
std::vector<std::string> Completions(const std::vector<const Command*>& commands,
                                     const std::vector<std::string>& words);

}  // namespace nccl_pulse

#endif  // EXPORTER_CLI_COMPLETION_H_
