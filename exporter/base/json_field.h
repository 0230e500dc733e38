// Fields of JSON that somebody else wrote: what is missing or has another type is nothing.
//
// Thread: any, no state.
#ifndef EXPORTER_BASE_JSON_FIELD_H_
#define EXPORTER_BASE_JSON_FIELD_H_

#include <cmath>
#include <cstdint>
#include <string>

#include "metrics/shared_bytes.h"
#include "nlohmann/json.hpp"

namespace nccl_pulse {

inline const nlohmann::json& At(const nlohmann::json& object, const char* key) {
  static const auto* const nothing = new nlohmann::json(nullptr);
  if (!object.is_object()) return *nothing;
  const auto found = object.find(key);
  return found == object.end() ? *nothing : *found;
}

// Without anything that could steer a terminal, and at most 4 KiB.
inline std::string TextAt(const nlohmann::json& object, const char* key) {
  const nlohmann::json& value = At(object, key);
  if (!value.is_string()) return "";
  const auto& text = value.get_ref<const std::string&>();
  return CopyFromShared(text.data(), text.size() < 4096 ? text.size() : 4096);
}

inline int64_t NumberAt(const nlohmann::json& object, const char* key, int64_t otherwise = 0) {
  const nlohmann::json& value = At(object, key);
  return value.is_number_integer() ? value.get<int64_t>() : otherwise;
}

// Unix time in seconds, to the microsecond that pages have. 0: none.
inline int64_t TimeAt(const nlohmann::json& object, const char* key) {
  const nlohmann::json& value = At(object, key);
  const double seconds = value.is_number() ? value.get<double>() : 0;
  constexpr double kMostSeconds = 8e9;
  if (!(seconds > 0) || seconds > kMostSeconds) return 0;
  return std::llround(seconds * 1e6) * 1000;
}

}  // namespace nccl_pulse

#endif  // EXPORTER_BASE_JSON_FIELD_H_
