// Parses and writes JSON.
//
// Input may be hostile. Its depth and memory are measured before it is parsed, and too deep or too
// large text is refused. So parsed values can be copied, compared and written by recursion. The
// library's parser and writer templates, a third of a file's compile time, are instantiated only in
// json_text.cc.
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

// Returns an upper bound of the memory that the values of `text` take once parsed, in bytes. Empty
// if it nests deeper than kMostJsonDepth.
std::optional<std::size_t> JsonMemory(std::string_view text);

// Returns a value with is_discarded() if the text is not JSON, nests deeper than kMostJsonDepth, or
// would take more than `most_bytes` of memory. Such a value is no object, array or scalar.
nlohmann::json ParseJson(std::string_view text, std::size_t most_bytes = kMostJsonBytes);

// Returns `json` on one line, or with `indent` columns per level. Invalid UTF-8 becomes U+FFFD.
std::string JsonText(const nlohmann::json& json, int indent = -1);
std::string JsonText(const nlohmann::ordered_json& json, int indent = -1);

// Returns `text` as a JSON string, in quotes. Invalid UTF-8 becomes U+FFFD.
std::string QuotedJson(const std::string& text);

}  // namespace nccl_pulse

#endif  // EXPORTER_BASE_JSON_TEXT_H_
