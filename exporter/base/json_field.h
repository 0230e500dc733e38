// Reads fields of untrusted JSON. A missing field, or one of another type, gives the default.
//
// Thread: any, no state.
#ifndef EXPORTER_BASE_JSON_FIELD_H_
#define EXPORTER_BASE_JSON_FIELD_H_

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>

#include "exporter/base/plain_text.h"
#include "nlohmann/json.hpp"

namespace nccl_pulse {

inline const nlohmann::json& At(const nlohmann::json& object, const char* key) {
  static const auto* const kNothing = new nlohmann::json(nullptr);
  if (!object.is_object()) return *kNothing;
  const auto found = object.find(key);
  return found == object.end() ? *kNothing : *found;
}

// Returns the text made plain (plain_text.h); "" if the field is not a text.
inline std::string TextAt(const nlohmann::json& object, const char* key,
                          std::size_t most = kMostPlainBytes) {
  const nlohmann::json& value = At(object, key);
  return value.is_string() ? PlainText(value.get_ref<const std::string&>(), most) : "";
}

inline int64_t NumberAt(const nlohmann::json& object, const char* key, int64_t otherwise = 0) {
  const nlohmann::json& value = At(object, key);
  return value.is_number_integer() ? value.get<int64_t>() : otherwise;
}

// Returns a time in nanoseconds, from Unix time in seconds, to the microsecond (pages have no
// more). 0 if there is none.
inline int64_t TimeAt(const nlohmann::json& object, const char* key) {
  const nlohmann::json& value = At(object, key);
  const double seconds = value.is_number() ? value.get<double>() : 0;
  constexpr double kMostSeconds = 8e9;
  if (!(seconds > 0) || seconds > kMostSeconds) return 0;
  return std::llround(seconds * 1e6) * 1000;
}

}  // namespace nccl_pulse

#endif  // EXPORTER_BASE_JSON_FIELD_H_
