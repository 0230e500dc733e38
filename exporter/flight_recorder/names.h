// Names of NCCL's operations and data types in flight-recorder dumps, as PyTorch and its tool
// torchfrtrace use them, for writing and reading.
//
// Thread: any, no state.
#ifndef EXPORTER_FLIGHT_RECORDER_NAMES_H_
#define EXPORTER_FLIGHT_RECORDER_NAMES_H_

#include <cstdint>
#include <string>
#include <string_view>

namespace nccl_pulse::flight_recorder {

// Key of the time of writing, in ns since 1970. Only dumps of `pulse capture` have it.
inline constexpr char kWrittenKey[] = "written_time_ns";

// An operation's names in NCCL, and in PyTorch and torchfrtrace (types.py, COLLECTIVES).
struct Operation {
  const char* nccl;
  const char* torch;
  bool input_of_all, output_of_all;  // size is that of all ranks together
  bool input_known, output_known;    // on every rank; else only on the root
};
// Returns null if torchfrtrace does not know the operation.
const Operation* FindOperation(const std::string& name);

// PyTorch's name of an NCCL operation in a dump; several names may mean one operation.
struct TorchOperation {
  // Tensors with the same size on all ranks of a group.
  enum class Sizes : uint8_t { kInput, kOutput, kNotAlike };

  std::string_view torch;
  const char* nccl;
  Sizes sizes;
};
// Returns null if the operation's mapping to NCCL is not known.
const TorchOperation* FindTorchOperation(std::string_view name);

// A type of nccl.h, its c10::ScalarType name, and its size.
struct DataType {
  const char* nccl;
  const char* torch;
  int64_t bytes;
};
const DataType* FindDataType(std::string_view name);       // null: unknown
const DataType* FindTorchDataType(std::string_view name);  // by PyTorch's name

}  // namespace nccl_pulse::flight_recorder

#endif  // EXPORTER_FLIGHT_RECORDER_NAMES_H_
