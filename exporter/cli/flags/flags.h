// ReadFlags reads one command's flags into variables.
//
// Accepted: "--name=VALUE" and "--name VALUE"; for a switch "--name" or "--name=false". "_" equals
// "-", and one leading dash equals two. After "--" come only arguments.
//
// Thread: main thread. Cost: some searches in short lists.
#ifndef EXPORTER_CLI_FLAGS_FLAGS_H_
#define EXPORTER_CLI_FLAGS_FLAGS_H_

#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/time/time.h"

namespace nccl_pulse {

struct Flag {
  std::string_view name;  // "--web-config"
  // The initial value is the default. The last occurrence wins; a vector keeps all.
  std::variant<bool*, int*, std::optional<int>*, absl::Duration*, std::optional<absl::Duration>*,
               std::string*, std::vector<std::string>*>
      value;
  // Allowed words of a text, "auto|always|never"; "": any text.
  std::string_view choices{};
};

// Reads the words after the name of `command` ("pulse agent"). Adds non-flags to `arguments`.
// Returns what is wrong with the first invalid flag; "": nothing.
std::string ReadFlags(std::string_view command, const std::vector<Flag>& flags,
                      const std::vector<std::string_view>& given,
                      std::vector<std::string>* arguments);

// Returns the candidate that `written` probably meant; "" if none is similar.
std::string Nearest(std::string_view written, const std::vector<std::string>& candidates);

}  // namespace nccl_pulse

#endif  // EXPORTER_CLI_FLAGS_FLAGS_H_
