// A made-up training job: its ranks, the communicators that they share, and what runs on those.
//
// The ranks are laid out as Megatron-LM does it by default: tensor parallel within a node, then
// data parallel, then pipeline parallel. Example: 1,000 ranks on 125 nodes are 5 pipeline stages of
// 25 nodes, with 125 + 40 + 200 + 1 communicators. A sharded job has the same communicators and
// nothing but collectives in them: what would be a stage is a replica.
//
// Thread: any; plain data and pure functions.
#ifndef BENCH_FLEET_MADE_UP_JOB_H_
#define BENCH_FLEET_MADE_UP_JOB_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace nccl_pulse {

// Which ranks share a communicator.
enum class Group {
  kNode,      // those of a node
  kData,      // the same place in the node and the same pipeline stage
  kPipeline,  // the same place in the node and in the stage
  kWorld,     // all
};

struct OperationKind {
  const char* op;
  bool collective;  // else point-to-point: NCCL names no algorithm
  uint64_t bytes;
  uint64_t typical_ns;
  int calls_per_second;
};

struct CommunicatorKind {
  const char* name;
  Group group;
  std::array<OperationKind, 2> operations;
};

struct JobShape {
  int nodes = 0;
  int gpus_per_node = 0;
  int stages = 0;  // of the pipeline
  bool sharded = false;

  int ranks() const { return nodes * gpus_per_node; }
};

// One rank's place in a communicator.
struct Membership {
  const CommunicatorKind* kind;
  uint64_t comm_id;
  int rank;
  int nranks;
  int nnodes;
};

inline constexpr int kMostCommunicators = 8;

// Up to five pipeline stages, whatever divides the nodes and leaves each stage two or more.
JobShape MakeJobShape(int nodes, int gpus_per_node, bool sharded);

// The communicators of a global rank, at most `communicators` of kMostCommunicators. Those that it
// would be alone in are left out.
std::vector<Membership> CommunicatorsOf(const JobShape& job, int global_rank, int communicators);

std::string HostName(int node);        // "gpu-node-0123"
std::string GpuUuid(int global_rank);  // "GPU-", and 36 characters
std::string PciBusId(int gpu);         // "00000000:1B:00.0"

}  // namespace nccl_pulse

#endif  // BENCH_FLEET_MADE_UP_JOB_H_
