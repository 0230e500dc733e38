// The flags of one command: their names, and where their values go.
//
// "--name=VALUE" and "--name VALUE"; "--name" alone for a switch, or "--name=false". "_" is taken
// for "-", and one dash in front for two. Behind "--" there are arguments alone.
//
// Thread: main thread. Cost: some searches in short lists.
#ifndef EXPORTER_CLI_FLAGS_H_
#define EXPORTER_CLI_FLAGS_H_

#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/time/time.h"

namespace nccl_pulse {

struct Flag {
  std::string_view name;  // "--web-config"
  // What is there before is the default. The last of several counts; a vector keeps all of them.
  std::variant<bool*, int*, std::optional<int>*, absl::Duration*, std::optional<absl::Duration>*,
               std::string*, std::vector<std::string>*>
      value;
  // The words that a text can be, "auto|always|never"; "": any text.
  std::string_view choices;
};

// Reads what stands behind the command's name. What is no flag is added to `arguments`. Returns
// what is wrong with the first flag that is; "": nothing.
std::string ReadFlags(std::string_view command, const std::vector<Flag>& flags,
                      const std::vector<std::string_view>& given,
                      std::vector<std::string>* arguments);

// What of `candidates` was meant with `written`; "": nothing is like it.
std::string Nearest(std::string_view written, const std::vector<std::string>& candidates);

}  // namespace nccl_pulse

#endif  // EXPORTER_CLI_FLAGS_H_
