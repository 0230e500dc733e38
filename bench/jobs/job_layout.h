// JobLayout describes how the ranks of a simulated job share communicators, and what each rank does
// in a training step.
//
// The order is Megatron-LM's default: tensor parallel first, then data parallel, then pipeline
// parallel. Experts are spread over neighbors of the data-parallel group.
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
  int experts = 1;  // number of ranks that exchange tokens; divides `data`
  int layers = 2;   // per pipeline stage
  int microbatches = 1;
  int slowdown = 1;         // factor of all work, relative to a step of some 10 ms
  bool has_world = true;    // a communicator of all ranks, for one AllReduce in each step
  bool is_sharded = false;  // each layer gathers its parameters and scatters its gradients
  bool has_second = false;  // a second communicator of the data-parallel ranks
  // Posts calls ahead of the work that needs them, on their own streams: pipeline stages their next
  // Recv, data-parallel ranks the Broadcast of the next batch.
  bool posts_ahead = false;
  bool syncs_often = false;    // of `posts_ahead`: hosts synchronize after each microbatch
  bool has_broadcast = false;  // data-parallel ranks get each batch by a Broadcast
  // Gradients and parameters are lists of tensors, as in PyTorch's backend nccl2: a group of
  // Reduces or Broadcasts, one with each rank as the root. NCCL reports no launch of these
  // Broadcasts. A barrier follows, an AllReduce of four bytes.
  bool has_lists = false;
  // Data-parallel ranks only send to the next rank and receive from the previous one.
  bool is_ring = false;
  bool has_broadcasts_alone = false;  // data-parallel ranks only have Broadcasts
  // Pipeline messages are large: a Send ends when it has been received. All forward passes come
  // first.
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
  // Only in jobs that post ahead.
  kForward,
  kBackward,
  kInput
};

struct JobGroup {
  GroupKind kind;
  uint64_t comm_id;
  std::vector<int> members;  // global ranks, by rank in the group
  int nodes;
  int stream = 0;  // stream of its calls, on each rank
};

enum class StepKind : uint8_t {
  kHostWork,
  kGpuWork,
  kCollective,
  kExchange,
  kSend,
  kReceive,
  kAwait,  // the stream waits for work launched on another stream
  kSync    // the host waits for the first stream
};
inline constexpr int kJobStreams = 3;

// One action in a rank's program.
struct JobStep {
  StepKind kind{};
  int group = -1;  // index of the group
  int peer = -1;   // of Send and Recv: global rank
  const char* op = "";
  int size_class = 0;
  int64_t work_ns = 0;  // host or GPU work, or duration of a collective once all have arrived
  int stream = 0, awaited_stream = 0;  // of kAwait
  int root = -1;                       // of a Broadcast
  int peer_rank = -1;                  // of Send and Recv: rank in the group
  bool is_list = false;                // a group of one call per rank, with that rank as the root
  bool is_hidden = false;              // NCCL reports no launch
  // A Broadcast whose root, or a Reduce whose other ranks, leave as soon as their part is done.
  bool is_left_early = false;
  uint64_t bytes = 0;  // of a call; 0: the largest of its size class
};

std::vector<JobGroup> GroupsOf(const JobLayout& layout, uint64_t seed);

// Phase of a step of the job: training, or evaluation (forward only).
enum class Phase { kTraining, kEvaluation };
// Returns the actions of one step of the job, for each rank.
std::vector<std::vector<JobStep>> ProgramOf(const JobLayout& layout,
                                            const std::vector<JobGroup>& groups,
                                            Phase phase = Phase::kTraining);

}  // namespace nccl_pulse

#endif  // BENCH_JOBS_JOB_LAYOUT_H_
