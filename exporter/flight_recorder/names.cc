#include "exporter/flight_recorder/names.h"

namespace nccl_pulse::flight_recorder {
namespace {

constexpr Operation kOperations[] = {
    // nccl, torch, input_of_all, output_of_all, input_known, output_known
    {"AllReduce", "all_reduce", false, false, true, true},
    {"AllGather", "_all_gather_base", false, true, true, true},
    {"ReduceScatter", "_reduce_scatter_base", true, false, true, true},
    {"Broadcast", "broadcast", false, false, true, true},
    {"Reduce", "reduce", false, false, true, true},
    {"AlltoAll", "all_to_all", true, true, true, true},
    {"Gather", "gather", false, true, true, false},
    {"Scatter", "scatter", true, false, false, true},
};

using Sizes = TorchOperation::Sizes;

constexpr TorchOperation kTorchOperations[] = {
    {"all_reduce", "AllReduce", Sizes::kInput},
    {"all_reduce_barrier", "AllReduce", Sizes::kInput},
    {"allreduce_coalesced", "AllReduce", Sizes::kInput},
    {"barrier", "AllReduce", Sizes::kNotAlike},
    {"_all_gather_base", "AllGather", Sizes::kInput},
    {"all_gather", "AllGather", Sizes::kInput},
    {"all_gather_into_tensor_coalesced", "AllGather", Sizes::kInput},
    {"all_gather_single", "AllGather", Sizes::kInput},
    {"all_gather_v", "AllGather", Sizes::kNotAlike},
    {"ALLGATHER_coalesced", "AllGather", Sizes::kNotAlike},
    {"_reduce_scatter_base", "ReduceScatter", Sizes::kOutput},
    {"reduce_scatter", "ReduceScatter", Sizes::kOutput},
    {"reduce_scatter_single", "ReduceScatter", Sizes::kOutput},
    {"reduce_scatter_tensor_coalesced", "ReduceScatter", Sizes::kOutput},
    {"reduce_scatter_v", "ReduceScatter", Sizes::kNotAlike},
    {"REDUCE_SCATTER_coalesced", "ReduceScatter", Sizes::kNotAlike},
    {"broadcast", "Broadcast", Sizes::kInput},
    {"_broadcast_oop", "Broadcast", Sizes::kInput},
    {"reduce", "Reduce", Sizes::kInput},
    {"_reduce_oop", "Reduce", Sizes::kInput},
    {"all_to_all", "AlltoAll", Sizes::kNotAlike},
    {"all_to_all_single", "AlltoAll", Sizes::kNotAlike},
    {"all_to_all_v_single", "AlltoAll", Sizes::kNotAlike},
    {"gather", "Gather", Sizes::kInput},
    {"scatter", "Scatter", Sizes::kOutput},
};

constexpr DataType kDataTypes[] = {
    {"ncclInt8", "Char", 1},
    {"ncclUint8", "Byte", 1},
    {"ncclInt32", "Int", 4},
    {"ncclUint32", "UInt32", 4},
    {"ncclInt64", "Long", 8},
    {"ncclUint64", "UInt64", 8},
    {"ncclFloat16", "Half", 2},
    {"ncclFloat32", "Float", 4},
    {"ncclFloat64", "Double", 8},
    {"ncclBfloat16", "BFloat16", 2},
    {"ncclFloat8e4m3", "Float8_e4m3fn", 1},
    {"ncclFloat8e5m2", "Float8_e5m2", 1},
};

}  // namespace

const Operation* FindOperation(const std::string& name) {
  for (const Operation& each : kOperations) {
    if (name == each.nccl) return &each;
  }
  return nullptr;
}

const TorchOperation* FindTorchOperation(std::string_view name) {
  for (const TorchOperation& each : kTorchOperations) {
    if (name == each.torch) return &each;
  }
  return nullptr;
}

const DataType* FindDataType(std::string_view name) {
  for (const DataType& each : kDataTypes) {
    if (name == each.nccl) return &each;
  }
  return nullptr;
}

const DataType* FindTorchDataType(std::string_view name) {
  for (const DataType& each : kDataTypes) {
    if (name == each.torch) return &each;
  }
  return nullptr;
}

}  // namespace nccl_pulse::flight_recorder
