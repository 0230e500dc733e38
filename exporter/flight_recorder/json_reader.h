// Reads JSON into the same values as ReadPickle: dumps that were taken as JSON.
//
// Thread: any, no state. Cost: linear in the bytes; memory as Values counts it.
#ifndef EXPORTER_FLIGHT_RECORDER_JSON_READER_H_
#define EXPORTER_FLIGHT_RECORDER_JSON_READER_H_

#include <string>
#include <string_view>

#include "exporter/flight_recorder/values.h"

namespace nccl_pulse::flight_recorder {

// On failure returns false, with what is wrong in `error`.
bool ReadJson(std::string_view text, Values* values, Value* root, std::string* error);

}  // namespace nccl_pulse::flight_recorder

#endif  // EXPORTER_FLIGHT_RECORDER_JSON_READER_H_
