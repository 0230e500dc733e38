// How the ranks of a made-up job share communicators, and what each of them does in a step.
//
// Ranks are laid out as Megatron-LM does it by default: tensor parallel first, then data parallel,
// then pipeline parallel. Experts are spread over neighbours of the data-parallel group.
//
// Thread: any; plain data and pure functions.
#ifndef BENCH_JOBS_JOB_LAYOUT_H_
#define BENCH_JOBS_JOB_LAYOUT_H_

#include <cstdint>
#include <string>
#include <vector>

namespace nccl_pulse {

struct JobLayout {
  std::string name;
  int gpus_per_node = 8;
  int tensor = 1, pipeline = 1, data = 1;
  int experts = 1;  // ranks that exchange tokens; divides `data`
  int layers = 2;   // of a pipeline stage
  int microbatches = 1;
  int slowdown = 1;         // how much longer all work takes than in a step of some 10 ms
  bool has_world = true;    // a communicator of all ranks, on which each step ends
  bool is_sharded = false;  // parameters are: a layer's are gathered before it, gradients scattered
  bool has_second = false;  // a second communicator of the data-parallel ranks
  // Calls are made ahead of the work that needs them, on streams of their own: of two stages each
  // posts its next Recv, data-parallel ranks the Broadcast of the next batch.
  bool posts_ahead = false;
  bool syncs_often = false;    // hosts wait for their GPUs after each microbatch
  bool has_broadcast = false;  // data-parallel ranks get each batch by a Broadcast
  // Gradients and parameters are lists of tensors, as of PyTorch's backend nccl2: a group of Reduces or
  // Broadcasts, one with each rank as the root. NCCL reports no launch of these Broadcasts. A barrier
  // follows, an AllReduce of four bytes.
  bool has_lists = false;
  // Data-parallel ranks have no other calls: each sends to the next one and receives from the one before.
  bool is_ring = false;
  bool has_broadcasts_alone = false;  // data-parallel ranks have no other calls
  // Messages of a pipeline are large: a Send ends when it has been received. All forward passes come first.
  bool sends_wait = false;

  int ranks() const { return tensor * pipeline * data; }
  int nodes() const { return (ranks() + gpus_per_node - 1) / gpus_per_node; }
  int NodeOf(int rank) const { return rank / gpus_per_node; }
};

enum class GroupKind {
  kTensor,
  kData,
  kSecond,
  kExperts,
  kPipeline,
  kWorld,
  // Of jobs that post ahead.
  kForward,
  kBackward,
  kInput
};

struct JobGroup {
  GroupKind kind;
  uint64_t comm_id;
  std::vector<int> members;  // global ranks, in the order of their ranks here
  int nodes;
  int stream = 0;  // of each rank, that its calls are made on
};

enum class StepKind : uint8_t {
  kHostWork,
  kGpuWork,
  kCollective,
  kExchange,
  kSend,
  kReceive,
  kAwait,  // on a stream: for what has been launched on another one
  kSync    // the host: for the first stream
};
inline constexpr int kJobStreams = 3;

// What a rank does next.
struct JobStep {
  StepKind kind{};
  int group = -1;  // index of it
  int peer = -1;   // of Send and Recv: global rank
  const char* op = "";
  int size_class = 0;
  int64_t work_ns = 0;  // of host and GPU work, and of what a communicator does once all have come
  int stream = 0, awaited_stream = 0;  // of kAwait
  int root = -1;                       // of a Broadcast
  int peer_rank = -1;                  // of Send and Recv: in the group
  bool is_list = false;                // a call with each rank as the root, in one group
  bool is_hidden = false;              // NCCL reports no launch
  // A Broadcast that the root, or a Reduce that all other ranks leave as soon as their part is done.
  bool is_left_early = false;
  uint64_t bytes = 0;  // of a call; 0: the largest of its size class
};

std::vector<JobGroup> GroupsOf(const JobLayout& layout, uint64_t seed);

// One training step of each rank, or one of an evaluation: forward alone.
enum class Phase { kTraining, kEvaluation };
std::vector<std::vector<JobStep>> ProgramOf(const JobLayout& layout,
                                            const std::vector<JobGroup>& groups,
                                            Phase phase = Phase::kTraining);

}  // namespace nccl_pulse

#endif  // BENCH_JOBS_JOB_LAYOUT_H_
