// Whether a text is a communicator's id, as pages and people write it. What is none goes neither
// into a path that is asked for nor into the name of a file.
//
// Thread: any, no state.
#ifndef EXPORTER_FLEET_COMMUNICATOR_ID_H_
#define EXPORTER_FLEET_COMMUNICATOR_ID_H_

#include <string_view>

namespace nccl_pulse {

inline bool IsCommunicatorId(std::string_view text) {
  return text.size() == 16 && text.find_first_not_of("0123456789abcdefABCDEF") == text.npos;
}

}  // namespace nccl_pulse

#endif  // EXPORTER_FLEET_COMMUNICATOR_ID_H_
