// Messages between the coordinator and the ranks: one request, one reply, over a socket pair per
// rank (SOCK_SEQPACKET keeps messages whole). An idle rank blocks in read and costs nothing. Both
// ends are the same program.
//
//   coordinator                            rank (a process, or a thread of one)
//     kOpen                        ->        driver, context, streams
//     kUniqueId (rank 0 alone)     ->        makes NCCL's id
//     kConnect (with that id)      ->        communicator; is the plugin in the process?
//     kPrepare (a point)           ->        buffers, graph, values of one operation checked
//     kRun (steps)                 ->        one timing               many times
//     kQuit                        ->        destroys the communicator
#ifndef BENCH_COLLECTIVE_OVERHEAD_PROTOCOL_H_
#define BENCH_COLLECTIVE_OVERHEAD_PROTOCOL_H_

#include <cstdint>

#include "bench/collective_overhead/libraries.h"
#include "bench/collective_overhead/points.h"

namespace nccl_pulse::overhead {

enum class RequestKind : uint8_t { kOpen, kUniqueId, kConnect, kPrepare, kRun, kQuit };

struct Request {
  RequestKind kind;
  // kConnect
  NcclUniqueId unique_id;
  char plugin[4096];  // library that NCCL must have loaded; "none": none
  // kPrepare
  Point point;
  // Buffers are allocated once, for all following points.
  uint64_t largest_bytes;  // largest size of these points
  bool per_peer;           // buffers have room for largest_bytes per rank
  uint32_t graph_operations;
  uint32_t layer_rounds;  // kGraphDecode: rounds of the compute kernel before each operation
  bool check_values;
  // kRun. A step is one operation, or one replay of the graph.
  uint32_t warmup_steps;
  uint32_t steps;  // 0: the compute kernels alone
  uint32_t compute_kernels;
  uint32_t compute_rounds;
  uint32_t processor;  // to which the rank pins itself: index among its processors
};

struct Reply {
  bool ok;
  char text[1024];  // !ok: the error; kOpen: the GPU's name
  NcclUniqueId unique_id;
  int nccl_version;
  int driver_version;
  // kRun: from the first enqueue until the operations' stream has finished, and until the compute
  // stream has also finished.
  double operations_us;
  double total_us;
};

}  // namespace nccl_pulse::overhead

#endif  // BENCH_COLLECTIVE_OVERHEAD_PROTOCOL_H_
