#include "bench/fleet/made_up_job.h"

#include "absl/strings/str_format.h"

namespace nccl_pulse {
namespace {

constexpr uint64_t kKiB = 1 << 10;
constexpr uint64_t kMiB = 1 << 20;

// The first four are those of a job with tensor, data and pipeline parallelism; the others are for
// jobs with more communicators.
constexpr CommunicatorKind kKinds[kMostCommunicators] = {
    {"tensor_parallel",
     Group::kNode,
     {{{"AllGather", true, 4 * kMiB, 180'000, 200},
       {"ReduceScatter", true, 4 * kMiB, 190'000, 200}}}},
    {"data_parallel",
     Group::kData,
     {{{"ReduceScatter", true, 8 * kMiB, 6'000'000, 4},
       {"AllGather", true, 8 * kMiB, 5'000'000, 4}}}},
    {"pipeline_parallel",
     Group::kPipeline,
     {{{"Send", false, 32 * kMiB, 900'000, 16}, {"Recv", false, 32 * kMiB, 1'100'000, 16}}}},
    {"world",
     Group::kWorld,
     {{{"AllReduce", true, 4, 120'000, 2}, {"AllReduce", true, 32 * kKiB, 160'000, 2}}}},
    {"context_parallel",
     Group::kNode,
     {{{"Send", false, 16 * kMiB, 120'000, 100}, {"Recv", false, 16 * kMiB, 130'000, 100}}}},
    {"expert_parallel",
     Group::kData,
     {{{"Send", false, 512 * kKiB, 300'000, 50}, {"Recv", false, 512 * kKiB, 320'000, 50}}}},
    {"embedding",
     Group::kPipeline,
     {{{"AllReduce", true, 512 * kMiB, 30'000'000, 1}, {"AllReduce", true, 4, 90'000, 1}}}},
    {"expert_data_parallel",
     Group::kData,
     {{{"ReduceScatter", true, 2 * kMiB, 2'000'000, 4},
       {"AllGather", true, 2 * kMiB, 1'800'000, 4}}}},
};

// What a sharded job has in place of those with Send and Recv.
constexpr CommunicatorKind kReplicas = {
    "replicas",
    Group::kPipeline,
    {{{"AllReduce", true, 32 * kMiB, 1'900'000, 8}, {"AllReduce", true, 8 * kMiB, 700'000, 8}}}};
constexpr CommunicatorKind kShardedContext = {"context_parallel",
                                              Group::kNode,
                                              {{{"AllGather", true, 16 * kMiB, 120'000, 100},
                                                {"ReduceScatter", true, 16 * kMiB, 130'000, 100}}}};
constexpr CommunicatorKind kShardedExperts = {"expert_parallel",
                                              Group::kData,
                                              {{{"AllGather", true, 512 * kKiB, 300'000, 50},
                                                {"ReduceScatter", true, 512 * kKiB, 320'000, 50}}}};

const CommunicatorKind& KindOf(const JobShape& job, int i) {
  const CommunicatorKind& kind = kKinds[i];
  if (!job.sharded || kind.operations[0].collective) return kind;
  if (kind.group == Group::kPipeline) return kReplicas;
  return kind.group == Group::kNode ? kShardedContext : kShardedExperts;
}

// The finalizer of SplitMix64: it makes numbers that look like NCCL's hashes.
uint64_t Mix(uint64_t value) {
  value += 0x9e3779b97f4a7c15u;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
  return value ^ (value >> 31);
}

struct Place {
  int number;  // index of the communicator among those of its kind
  int rank;
  int nranks;
  int nnodes;
};

Place PlaceOf(const JobShape& job, Group group, int global_rank) {
  const int gpus = job.gpus_per_node;
  const int node = global_rank / gpus;
  const int local_rank = global_rank % gpus;
  const int nodes_per_stage = job.nodes / job.stages;
  const int stage = node / nodes_per_stage;
  const int in_stage = node % nodes_per_stage;
  switch (group) {
    case Group::kNode:
      return {node, local_rank, gpus, 1};
    case Group::kData:
      return {stage * gpus + local_rank, in_stage, nodes_per_stage, nodes_per_stage};
    case Group::kPipeline:
      return {in_stage * gpus + local_rank, stage, job.stages, job.stages};
    case Group::kWorld:
      break;
  }
  return {0, global_rank, job.ranks(), job.nodes};
}

}  // namespace

JobShape MakeJobShape(int nodes, int gpus_per_node, bool sharded) {
  JobShape job{nodes, gpus_per_node, 1, sharded};
  for (int stages = 2; stages <= 5; ++stages) {
    if (nodes % stages == 0 && nodes / stages >= 2) job.stages = stages;
  }
  return job;
}

std::vector<Membership> CommunicatorsOf(const JobShape& job, int global_rank, int communicators) {
  std::vector<Membership> memberships;
  for (int i = 0; i < communicators; ++i) {
    const CommunicatorKind& kind = KindOf(job, i);
    const Place place = PlaceOf(job, kind.group, global_rank);
    if (place.nranks < 2) continue;
    const uint64_t comm_id =
        Mix(static_cast<uint64_t>(i) << 32 | static_cast<uint32_t>(place.number));
    memberships.push_back({&kind, comm_id, place.rank, place.nranks, place.nnodes});
  }
  return memberships;
}

std::string HostName(int node) { return absl::StrFormat("gpu-node-%04d", node); }

std::string GpuUuid(int global_rank) {
  const uint64_t high = Mix(uint64_t{1} << 40 | static_cast<uint32_t>(global_rank));
  const uint64_t low = Mix(high);
  return absl::StrFormat("GPU-%08x-%04x-%04x-%04x-%012x", high >> 32, high >> 16 & 0xffff,
                         high & 0xffff, low >> 48, low & 0xffff'ffff'ffff);
}

std::string PciBusId(int gpu) { return absl::StrFormat("00000000:%02X:00.0", 0x1b + 0x11 * gpu); }

}  // namespace nccl_pulse
