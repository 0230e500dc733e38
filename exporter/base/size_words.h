// Formats bytes and size classes ("le_4KiB", "gt_1GiB") for people.
//
// Thread: any.
#ifndef EXPORTER_BASE_SIZE_WORDS_H_
#define EXPORTER_BASE_SIZE_WORDS_H_

#include <cstddef>
#include <iterator>
#include <string>
#include <string_view>

#include "absl/strings/str_format.h"

namespace nccl_pulse {

// Returns the size after `up_to` or `over`: "up to 4KiB" in a sentence, "<=4KiB" in a table. Names
// without a size ("overflow") are returned unchanged.
inline std::string SizeWords(std::string_view size_class, std::string_view up_to,
                             std::string_view over) {
  const std::string_view bound = size_class.substr(0, 3);
  if (bound != "le_" && bound != "gt_") return std::string(size_class);
  return std::string(bound == "le_" ? up_to : over).append(size_class.substr(3));
}

// Returns "1.5 MiB".
inline std::string BytesWords(double bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  std::size_t unit = 0;
  while (bytes >= 1024 && unit + 1 < std::size(kUnits)) {
    bytes /= 1024;
    ++unit;
  }
  return absl::StrFormat("%.4g %s", bytes, kUnits[unit]);
}

}  // namespace nccl_pulse

#endif  // EXPORTER_BASE_SIZE_WORDS_H_
