#include "exporter/base/json_text.h"

#include <cstdint>

#include "nlohmann/json.hpp"

namespace nccl_pulse {
namespace {

template <typename Json>
std::string Text(const Json& json, int indent) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

std::optional<std::size_t> JsonMemory(std::string_view text) {
  // Sizes of malloc's blocks, in this order: a vector or map with its first element; a map's node
  // with its key; a vector's element, times three because vectors grow; a string.
  constexpr std::size_t kArray = 96, kObject = 80, kMember = 96, kElement = 48, kText = 48;
  std::size_t bytes = 0;
  int depth = 0;
  bool is_in_text = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (is_in_text) {
      if (c == '\\') ++i;
      is_in_text = c != '"';
      ++bytes;
      continue;
    }
    switch (c) {
      case '"':
        is_in_text = true;
        bytes += kText;
        break;
      case '[':
      case '{':
        if (++depth > kMostJsonDepth) return std::nullopt;
        bytes += c == '[' ? kArray : kObject;
        break;
      case ']':
      case '}':
        --depth;
        break;
      case ':':
        bytes += kMember;
        break;
      case ',':
        bytes += kElement;
        break;
      default:
        break;
    }
  }
  return bytes;
}

nlohmann::json ParseJson(std::string_view text, std::size_t most_bytes) {
  if (JsonMemory(text).value_or(SIZE_MAX) > most_bytes) return nlohmann::json::value_t::discarded;
  return nlohmann::json::parse(text.begin(), text.end(), nullptr, false);
}

std::string JsonText(const nlohmann::json& json, int indent) { return Text(json, indent); }
std::string JsonText(const nlohmann::ordered_json& json, int indent) { return Text(json, indent); }

std::string QuotedJson(const std::string& text) { return JsonText(nlohmann::json(text)); }

}  // namespace nccl_pulse
