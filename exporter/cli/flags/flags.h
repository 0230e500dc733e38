// Flag is a row of a command's table, from which ReadFlags reads, `pulse help` (and so the manual and
// docs/cli.md) prints, and the shell completes.
//
// Accepted: "--name=VALUE" and "--name VALUE"; for a switch "--name" or "--name=false". "_" equals
// "-", and one leading dash equals two. After "--" come only arguments.
//
// Thread: main thread. Cost: some searches in short lists.
#ifndef EXPORTER_CLI_FLAGS_FLAGS_H_
#define EXPORTER_CLI_FLAGS_FLAGS_H_

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/time/time.h"

namespace nccl_pulse {

struct Flag {
  std::string_view name;  // "--web-config"; of a row without a value: see `help`
  // The initial value is the default. The last occurrence wins; a vector keeps all.
  std::variant<bool*, int*, std::optional<int>*, absl::Duration*, std::optional<absl::Duration>*,
               std::string*, std::vector<std::string>*>
      value{};
  // The value's name in help, "FILE", or the only allowed words, "auto|always|never". "": a switch.
  std::string_view form{};
  // Text of help. A row without a value explains an argument; with "" `name` is a heading.
  std::string_view help{};

  // Limits of a number or a duration, "1s to 24h"; "": none.
  std::string_view range{};

  bool has_value() const { return value != decltype(value){}; }
  // Returns the allowed words; none if the flag takes any text.
  std::vector<std::string_view> Choices() const;
};
using FlagTable = std::vector<Flag>;

// Returns all rows of these tables.
FlagTable Joined(std::initializer_list<FlagTable> tables);

// Reads the words after the name of `command` ("pulse agent"). Adds non-flags to `arguments`.
// Returns what is wrong with the first invalid flag; "": nothing.
std::string ReadFlags(std::string_view command, const FlagTable& flags,
                      const std::vector<std::string_view>& given,
                      std::vector<std::string>* arguments);

// Returns the candidate that `written` probably meant; "" if none is similar.
std::string Nearest(std::string_view written, const std::vector<std::string>& candidates);

}  // namespace nccl_pulse

#endif  // EXPORTER_CLI_FLAGS_FLAGS_H_
