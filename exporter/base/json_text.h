// Parses and writes JSON.
//
// The text may come from anybody: it is measured before it is parsed, and one that nests too deep
// or would take too much memory is refused. So what was parsed can be copied, compared and written
// by recursion. The templates of the library's parser and writer, a third of the time that a file
// takes to compile, are instantiated in json_text.cc alone.
//
// Thread: any, no state. Cost: linear in the text; allocates.
#ifndef EXPORTER_BASE_JSON_TEXT_H_
#define EXPORTER_BASE_JSON_TEXT_H_

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "nlohmann/json_fwd.hpp"

namespace nccl_pulse {

inline constexpr int kMostJsonDepth = 64;
inline constexpr std::size_t kMostJsonBytes = std::size_t{256} << 20;

// Returns about how much memory the values of `text` take once parsed, at least what they do take.
// Nothing: it nests deeper than kMostJsonDepth.
std::optional<std::size_t> JsonMemory(std::string_view text);

// Returns is_discarded(), and so no object, array or value, if the text is not JSON, nests deeper
// than kMostJsonDepth, or would take more than `most_bytes` of memory.
nlohmann::json ParseJson(std::string_view text, std::size_t most_bytes = kMostJsonBytes);

// On one line, or each level `indent` columns further in. What is not UTF-8 becomes U+FFFD.
std::string JsonText(const nlohmann::json& json, int indent = -1);
std::string JsonText(const nlohmann::ordered_json& json, int indent = -1);

// In quotes, as it stands in JSON; what is not UTF-8 as above.
std::string QuotedJson(const std::string& text);

}  // namespace nccl_pulse

#endif  // EXPORTER_BASE_JSON_TEXT_H_
