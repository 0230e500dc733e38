// The names in flight-recorder dumps: of NCCL's operations and data types, as PyTorch and its tool call
// them; and how fields of an endpoint's answer are read, in which anything may be missing.
//
// Thread: any, no state.
#ifndef EXPORTER_FLEET_FLIGHT_RECORDER_NAMES_H_
#define EXPORTER_FLEET_FLIGHT_RECORDER_NAMES_H_

#include <cstdint>
#include <string>

#include "nlohmann/json.hpp"

namespace nccl_pulse::flight_recorder {

using Json = nlohmann::json;

// Null, "" and `otherwise` where there is no such field, or it is of another type.
const Json& At(const Json& object, const char* key);
std::string TextAt(const Json& object, const char* key);
int64_t NumberAt(const Json& object, const char* key, int64_t otherwise = 0);

// NCCL's names, and what PyTorch and the tool call the same (types.py, COLLECTIVES).
struct Operation {
  const char* nccl;
  const char* torch;
  bool input_of_all, output_of_all;  // as many elements as all ranks pass together
  bool input_known, output_known;    // on every rank: else on the root alone
};
// Null: the tool does not know it.
const Operation* FindOperation(const std::string& name);

// nccl.h's types by the names of c10::ScalarType, and their bytes.
struct DataType {
  const char* nccl;
  const char* torch;
  int64_t bytes;
};
const DataType* FindDataType(const std::string& name);  // null: unknown

}  // namespace nccl_pulse::flight_recorder

#endif  // EXPORTER_FLEET_FLIGHT_RECORDER_NAMES_H_
