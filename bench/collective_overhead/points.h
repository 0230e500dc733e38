// Points to measure (operation, size, mode, with or without a compute kernel), and their names for
// users.
//
// Thread: plain data and pure functions. Errors: Parse* return nothing for an unknown name.
#ifndef BENCH_COLLECTIVE_OVERHEAD_POINTS_H_
#define BENCH_COLLECTIVE_OVERHEAD_POINTS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace nccl_pulse::overhead {

enum class Operation : uint8_t {
  kAllReduce,
  kAllGather,
  kReduceScatter,
  kBroadcast,
  kAllToAll,
  kSendRecv,
};
inline constexpr Operation kOperations[] = {Operation::kAllReduce,     Operation::kAllGather,
                                            Operation::kReduceScatter, Operation::kBroadcast,
                                            Operation::kAllToAll,      Operation::kSendRecv};

enum class Mode : uint8_t {
  kBackToBack,   // many operations on one stream, one synchronize at the end
  kSync,         // a synchronize after each
  kGraph,        // some operations captured, then replayed as a graph
  kGraphDecode,  // kGraph, with a kernel before each operation (a model's decode)
};
inline bool IsGraph(Mode mode) { return mode == Mode::kGraph || mode == Mode::kGraphDecode; }

// One rank per process, or all ranks as threads of one.
enum class Launch : uint8_t { kProcesses, kThreads };

// `bytes`: the count passed to NCCL, times four (float32). It is what a rank sends in an AllGather,
// keeps in a ReduceScatter, and sends to each peer in an all-to-all.
struct Point {
  Operation operation;
  Mode mode;
  bool compute;  // a compute kernel runs on another stream (compute_kernel.h)
  uint64_t bytes;
};

const char* Name(Operation operation);
const char* Name(Mode mode);
const char* Name(Launch launch);
std::optional<Operation> ParseOperation(std::string_view name);
std::optional<Mode> ParseMode(std::string_view name);
std::optional<Launch> ParseLaunch(std::string_view name);

// Parses "64", "4K", "4KiB", "256MiB", "1G"; powers of 1024.
std::optional<uint64_t> ParseSize(std::string_view text);
// Parses "64,4K,1M", or "64:256M:8": 64, 64*8, ... and always 256M at the end.
std::optional<std::vector<uint64_t>> ParseSizes(std::string_view text);
// Returns "64 B", "4 KiB"; exact, so 1500 stays "1500 B".
std::string SizeName(uint64_t bytes);
// Returns "all_reduce 4 KiB graph+compute"
std::string PointName(const Point& point);

}  // namespace nccl_pulse::overhead

#endif  // BENCH_COLLECTIVE_OVERHEAD_POINTS_H_
