// Reads untrusted JSON and formats numbers for `pulse status`. exporter/page/words.js, for
// browsers, formats them the same way.
//
// Thread: any, no state.
#ifndef EXPORTER_CLI_STATUS_STATUS_WORDS_H_
#define EXPORTER_CLI_STATUS_STATUS_WORDS_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "nlohmann/json_fwd.hpp"

namespace nccl_pulse {

double Number(const nlohmann::json& value);  // 0 for other types
// Returns a text or an integer as text, else "". Replaces control characters, which would control
// the terminal.
std::string Text(const nlohmann::json& value);
std::vector<nlohmann::json> List(const nlohmann::json& value);
bool Contains(const nlohmann::json& list, const nlohmann::json& value);

std::string Count(double count);                // "12.3k"
std::string ByteRate(double bytes_per_second);  // "211 GB/s", "2 kB/s"
std::string Size(std::string_view name);        // a size class: "<=1MiB" as "<=1 MiB"
std::string CommunicatorName(const nlohmann::json& comm);
// Wraps at `width` columns, indenting further lines like the first.
std::string Wrap(const std::string& text, std::size_t indent, std::size_t width);

}  // namespace nccl_pulse

#endif  // EXPORTER_CLI_STATUS_STATUS_WORDS_H_
