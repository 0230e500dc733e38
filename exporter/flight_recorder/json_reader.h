// ReadJson reads JSON dumps into the same values as ReadPickle.
//
// Thread: any, no state. Cost: linear in the bytes; memory as counted by Values.
#ifndef EXPORTER_FLIGHT_RECORDER_JSON_READER_H_
#define EXPORTER_FLIGHT_RECORDER_JSON_READER_H_

#include <string>
#include <string_view>

#include "exporter/flight_recorder/values.h"

namespace nccl_pulse::flight_recorder {

// On failure returns false and sets `error`.
bool ReadJson(std::string_view text, Values* values, Value* root, std::string* error);

}  // namespace nccl_pulse::flight_recorder

#endif  // EXPORTER_FLIGHT_RECORDER_JSON_READER_H_
