// Reads a pickle that has data and nothing else. Python's own reader runs what a pickle asks it to
// run; this one knows only the opcodes that make numbers, texts, lists, tuples and dictionaries
// (all that PyTorch writes into a dump, and what Python itself writes for the same data), and
// refuses a pickle with any other.
//
// Facts: Lib/pickletools.py of Python 3.13.
//
// Thread: any, no state. Cost: linear in the bytes; memory as Values counts it.
#ifndef EXPORTER_FLIGHT_RECORDER_PICKLE_READER_H_
#define EXPORTER_FLIGHT_RECORDER_PICKLE_READER_H_

#include <string>
#include <string_view>

#include "exporter/flight_recorder/values.h"

namespace nccl_pulse::flight_recorder {

// On failure returns false, with what is wrong and at which byte in `error`.
bool ReadPickle(std::string_view bytes, Values* values, Value* root, std::string* error);

}  // namespace nccl_pulse::flight_recorder

#endif  // EXPORTER_FLIGHT_RECORDER_PICKLE_READER_H_
