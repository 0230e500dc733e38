#include "exporter/base/json_text.h"

#include "nlohmann/json.hpp"

namespace nccl_pulse {
namespace {

template <typename Json>
std::string Text(const Json& json, int indent) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

nlohmann::json ParseJson(std::string_view text) {
  return nlohmann::json::parse(text.begin(), text.end(), nullptr, false);
}

std::string JsonText(const nlohmann::json& json, int indent) { return Text(json, indent); }
std::string JsonText(const nlohmann::ordered_json& json, int indent) { return Text(json, indent); }

std::string QuotedJson(const std::string& text) { return JsonText(nlohmann::json(text)); }

}  // namespace nccl_pulse
