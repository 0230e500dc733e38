// ReadPickle reads a pickle that contains only data. Python's own reader executes what a pickle
// requests. ReadPickle only knows the opcodes for numbers, texts, lists, tuples and dictionaries,
// and refuses any other. PyTorch writes no others into a dump, nor does Python for the same data.
//
// Source: Lib/pickletools.py of Python 3.13.
//
// Thread: any, no state. Cost: linear in the bytes; memory as counted by Values.
#ifndef EXPORTER_FLIGHT_RECORDER_PICKLE_READER_H_
#define EXPORTER_FLIGHT_RECORDER_PICKLE_READER_H_

#include <string>
#include <string_view>

#include "exporter/flight_recorder/values.h"

namespace nccl_pulse::flight_recorder {

// On failure returns false and sets `error`, with the byte offset.
bool ReadPickle(std::string_view bytes, Values* values, Value* root, std::string* error);

}  // namespace nccl_pulse::flight_recorder

#endif  // EXPORTER_FLIGHT_RECORDER_PICKLE_READER_H_
