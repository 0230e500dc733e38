// Names of NCCL's operations and data types in flight-recorder dumps, for writing and reading them.
// PyTorch writes dumps; its tool torchfrtrace reads them.
//
// Thread: any, no state.
#ifndef EXPORTER_FLIGHT_RECORDER_NAMES_H_
#define EXPORTER_FLIGHT_RECORDER_NAMES_H_

#include <cstdint>
#include <string>
#include <string_view>

namespace nccl_pulse::flight_recorder {

// Key of a dump's time of writing, in ns since 1970. Only dumps of `pulse capture` have it.
inline constexpr char kWrittenKey[] = "written_time_ns";

// An operation for dumps that `pulse capture` writes.
struct Operation {
  const char* nccl;                  // NCCL's name
  const char* torch;                 // PyTorch's and torchfrtrace's (types.py, COLLECTIVES)
  bool input_of_all, output_of_all;  // tensor has the data of all ranks, else of one rank
  bool input_known, output_known;    // tensor is known on every rank, else only on the root
};
// Finds an operation by NCCL's name. Returns null if torchfrtrace does not know it.
const Operation* FindOperation(const std::string& name);

// PyTorch's name of an NCCL operation in a dump that is read; several names may mean one operation.
struct TorchOperation {
  // Tensor that has the same size on all ranks of a group. kNotAlike: none.
  enum class Sizes : uint8_t { kInput, kOutput, kNotAlike };

  std::string_view torch;
  const char* nccl;
  Sizes sizes;
};
// Returns null if it is not known which NCCL operation the name means.
const TorchOperation* FindTorchOperation(std::string_view name);

// A data type: its names in nccl.h and as c10::ScalarType, and the size of an element.
struct DataType {
  const char* nccl;
  const char* torch;
  int64_t bytes;
};
const DataType* FindDataType(std::string_view name);       // by NCCL's name; null: unknown
const DataType* FindTorchDataType(std::string_view name);  // by PyTorch's name; null: unknown

}  // namespace nccl_pulse::flight_recorder

#endif  // EXPORTER_FLIGHT_RECORDER_NAMES_H_
