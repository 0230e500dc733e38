// The names in flight-recorder dumps: of NCCL's operations and data types, as PyTorch and its tool
// call them, for writing and for reading.
//
// Thread: any, no state.
#ifndef EXPORTER_FLIGHT_RECORDER_NAMES_H_
#define EXPORTER_FLIGHT_RECORDER_NAMES_H_

#include <cstdint>
#include <string>
#include <string_view>

namespace nccl_pulse::flight_recorder {

// NCCL's names, and what PyTorch and the tool call the same (types.py, COLLECTIVES).
struct Operation {
  const char* nccl;
  const char* torch;
  bool input_of_all, output_of_all;  // as many elements as all ranks pass together
  bool input_known, output_known;    // on every rank: else on the root alone
};
// Null: the tool does not know it.
const Operation* FindOperation(const std::string& name);

// What PyTorch calls the operations of NCCL that a dump can have; several names may mean one.
struct TorchOperation {
  // Which tensors have the same size on all ranks of a group.
  enum class Sizes : uint8_t { kInput, kOutput, kNotAlike };

  std::string_view torch;
  const char* nccl;
  Sizes sizes;
};
// Null: an operation of which it is not known what NCCL makes of it.
const TorchOperation* FindTorchOperation(std::string_view name);

// nccl.h's types by the names of c10::ScalarType, and their bytes.
struct DataType {
  const char* nccl;
  const char* torch;
  int64_t bytes;
};
const DataType* FindDataType(std::string_view name);       // null: unknown
const DataType* FindTorchDataType(std::string_view name);  // the same, by PyTorch's name

}  // namespace nccl_pulse::flight_recorder

#endif  // EXPORTER_FLIGHT_RECORDER_NAMES_H_
