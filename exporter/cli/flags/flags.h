// Flag is a row of a command's table of flags. ReadFlags parses the command line by this table.
// `pulse help`, the manual and docs/cli.md print it; shell completion reads it.
//
// Accepted: "--name=VALUE" and "--name VALUE"; for a switch "--name" or "--name=false". "_" equals
// "-", and one leading dash equals two. After "--" come only arguments.
//
// Thread: main thread.
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
  std::string_view name;  // "--web-config"; an argument or a heading if the row has no value
  // Variable that the flag sets; its initial value is the default. If the flag is repeated, the
  // last value wins; a vector keeps all.
  std::variant<bool*, int*, std::optional<int>*, absl::Duration*, std::optional<absl::Duration>*,
               std::string*, std::vector<std::string>*>
      value{};
  // The value's name in help ("FILE"), or all allowed words ("auto|always|never"). "": a switch.
  std::string_view form{};
  // Text for `pulse help`. In a row without a value it explains the argument `name`; if it is "",
  // `name` is a heading.
  std::string_view help{};

  // Limits of a number or a duration, "1s to 24h"; "": none.
  std::string_view range{};

  bool has_value() const { return value != decltype(value){}; }
  // Returns the allowed words; none if the flag takes any text.
  std::vector<std::string_view> Choices() const;
};
using FlagTable = std::vector<Flag>;

FlagTable Joined(std::initializer_list<FlagTable> tables);

// Parses `given`, the words after `command` ("pulse agent"), into the flags' variables. Adds words
// that are no flags to `arguments`. Returns what is wrong with the first invalid flag; "": nothing.
std::string ReadFlags(std::string_view command, const FlagTable& flags,
                      const std::vector<std::string_view>& given,
                      std::vector<std::string>* arguments);

// Returns the candidate that `written` probably meant; "" if none is similar.
std::string Nearest(std::string_view written, const std::vector<std::string>& candidates);

}  // namespace nccl_pulse

#endif  // EXPORTER_CLI_FLAGS_FLAGS_H_
