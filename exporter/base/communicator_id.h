// Formats and parses communicator ids: 16 hexadecimal digits.
//
// Thread: any, no state.
#ifndef EXPORTER_BASE_COMMUNICATOR_ID_H_
#define EXPORTER_BASE_COMMUNICATOR_ID_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace nccl_pulse {

inline std::string CommunicatorText(uint64_t comm_id) {
  return absl::StrCat(absl::Hex(comm_id, absl::kZeroPad16));
}

// True if `text` is a communicator id. Check ids from outside before using them in a request's path
// or a file name.
inline bool IsCommunicatorId(std::string_view text) {
  return text.size() == 16 && text.find_first_not_of("0123456789abcdefABCDEF") == text.npos;
}

// Returns nothing for other text.
inline std::optional<uint64_t> ParseCommunicatorId(std::string_view text) {
  uint64_t comm_id = 0;
  if (!IsCommunicatorId(text) || !absl::SimpleHexAtoi(text, &comm_id)) return std::nullopt;
  return comm_id;
}

}  // namespace nccl_pulse

#endif  // EXPORTER_BASE_COMMUNICATOR_ID_H_
