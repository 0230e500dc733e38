// JSON out of text, and into text. Here alone: the templates of the library's parser and writer,
// and with them a third of the time that a file takes to compile, are in json_text.cc once.
//
// Thread: any, no state. Cost: linear in the text; allocates.
#ifndef EXPORTER_BASE_JSON_TEXT_H_
#define EXPORTER_BASE_JSON_TEXT_H_

#include <string>
#include <string_view>

#include "nlohmann/json_fwd.hpp"

namespace nccl_pulse {

// is_discarded(), and so no object, array or value, if the text is not JSON.
nlohmann::json ParseJson(std::string_view text);

// On one line, or each level `indent` columns further in. What is not UTF-8 becomes U+FFFD.
std::string JsonText(const nlohmann::json& json, int indent = -1);
std::string JsonText(const nlohmann::ordered_json& json, int indent = -1);

// In quotes, as it stands in JSON; what is not UTF-8 as above.
std::string QuotedJson(const std::string& text);

}  // namespace nccl_pulse

#endif  // EXPORTER_BASE_JSON_TEXT_H_
