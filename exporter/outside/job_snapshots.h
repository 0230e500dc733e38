// JobsOf converts facts from RAS (the status service in NCCL's processes; its counts are launches
// of collectives), NVML and /proc to the snapshots that the diagnosis reads. So one engine judges
// jobs with and without the plugin.
//
//   source  fact                              snapshot
//   RAS     counts grew between two answers   the communicator makes progress
//           counts at rest, different         ranks with higher counts have work in flight, unless
//                                             their GPU has run nothing or computes; ranks with the
//                                             lowest count have not called the next collective
//           counts at rest, equal             decided by NVML's facts
//           rank missing                      see Condition
//   NVML    a GPU was always busy, without    its rank has work in flight
//           memory traffic
//           a GPU has run nothing             its rank has not called the operation in which the
//                                             busy ones wait, if no more GPUs are idle than busy
//           any                               a fact of its rank in the graph of waits
//   /proc   stopped or frozen; no such pid    see Condition
//
// A stopped, ended or silent rank blocks the others if one of their GPUs is busy, or if it had
// launched fewer when it last answered. An ended rank can't come back, so it also blocks them if no
// GPU's use is known. A running rank that has launched fewer, and whose GPU isn't busy, takes
// precedence: a stopped rank with a busy GPU waited for it, and so did an ended rank whose last
// counts aren't known. Ranks that move in another communicator wait for none of these.
//
// A rank that has launched fewer may wait outside NCCL for another rank. So it isn't named if the
// GPU of another rank computes, or if a single rank is ahead of several, which may have a stuck GPU
// or may have called something else. Ranks that ended or are silent may have waited for a GPU that
// computes.
//
// A GPU that several processes share is idle if it runs nothing. If it is busy, and all its
// processes with NCCL are ranks of one communicator, at least one of these ranks waits. If all GPUs
// are busy, nothing follows: they may replay CUDA graphs that stay in the cache.
//
// A lower count means "has launched fewer", not "has not called": the host may be inside NCCL. With
// Broadcast and Reduce, ranks can leave before others arrive, so their counts alone prove no wait.
// If RAS didn't answer the first time, its counts are ignored, and NVML's facts decide.
//
// Thread: any, no state. Cost: linear in the ranks of all communicators.
#ifndef EXPORTER_OUTSIDE_JOB_SNAPSHOTS_H_
#define EXPORTER_OUTSIDE_JOB_SNAPSHOTS_H_

#include <array>
#include <cstdint>
#include <map>
#include <numeric>
#include <string>
#include <tuple>
#include <vector>

#include "exporter/diagnosis/facts/snapshot_set.h"
#include "exporter/node/gpu_use.h"
#include "exporter/outside/host_processes.h"
#include "exporter/outside/ras_answer.h"

namespace nccl_pulse::outside {

struct Observation {
  RasAnswer before, after;             // RAS' two answers
  int64_t before_ns = 0, now_ns = 0;   // Unix times of the answers
  int64_t since_ns = 0;                // Unix time when the GPUs began to wait, <= before_ns
  std::vector<HostProcess> processes;  // of this host, by pid
  std::vector<HostProcess> unloaded;   // see host_processes.h
  std::size_t unread = 0;              // see host_processes.h
  std::vector<HostGpu> gpus;           // use since since_ns, within the limits of outside_look.h
  // Addresses of this host, each with HostProcess::network.
  std::map<std::string, uint64_t> addresses;
  std::string hostname;
};

// How a communicator's counts changed between two answers. kUnclear: no counts to compare. kAtRest:
// not at all. kMoved: some grew. kBack: a count decreased, so one of the answers was wrong.
enum class Motion { kUnclear, kAtRest, kMoved, kBack };
Motion MotionOf(const RasCommunicator* before, const RasCommunicator& after);

// State of a rank's process, by /proc of its own host, else by RAS.
enum class Condition {
  kFine,     // runs, as far as known
  kSilent,   // doesn't answer RAS; on another host it may be stopped, gone or unreachable
  kStopped,  // see WhyNotRunning
  kDead,     // on another host, and RAS has given it up
  kGone,     // RAS gets no answer, and this host has no such pid
};

struct ProcessFacts {
  const HostProcess* local = nullptr;  // null: on another host
  Condition condition{};
  int gpu = -1;             // NVML's index
  GpuUse gpu_use{};         // kShared: several processes use it, and it isn't idle
  bool is_moving = false;   // is in a communicator whose counts grew
  bool is_needed = false;   // is in a communicator without a moving rank
  bool is_excused = false;  // it waited for a rank that runs, or isn't needed
  bool is_doubted = false;  // it may wait outside NCCL for the only rank ahead of it
};

// A process on one GPU, as RAS identifies it: host, pid in its own namespace, and NVML's index.
using ProcessKey = std::tuple<std::string, int32_t, int>;
inline ProcessKey KeyOf(const RasRank& rank) { return {rank.host, rank.pid, rank.nvml_dev}; }

// Numbers of GPUs, by use.
struct Uses {
  std::array<std::size_t, kGpuUses> counts{};
  std::size_t& operator[](GpuUse use) { return counts[static_cast<std::size_t>(use)]; }
  std::size_t operator[](GpuUse use) const { return counts[static_cast<std::size_t>(use)]; }
  bool AreAll(GpuUse use) const {
    return (*this)[use] != 0 &&
           (*this)[use] == std::accumulate(counts.begin(), counts.end(), std::size_t{0});
  }
  // True if no more GPUs compute than wait.
  bool DoFewCompute() const { return (*this)[GpuUse::kMixed] <= (*this)[GpuUse::kBusy]; }
};

struct Job {
  SnapshotSet set;
  std::map<ProcessKey, ProcessFacts> processes;
  std::map<uint64_t, RasCommunicator> communicators;  // by ID
  std::vector<const HostProcess*> unloaded;  // ranks on this host that have not loaded NCCL
  std::size_t moved = 0;                     // communicators whose counts grew
  std::size_t unclear = 0;                   // communicators whose Motion is kUnclear or kBack
  std::size_t waiting = 0;  // processes whose GPU waits, in none of the communicators that moved
  std::size_t unused = 0;   // communicators without a launch that RAS counts
  // Processes in none of the communicators that moved, and whose GPU's use isn't known.
  std::size_t unseen = 0;
  bool is_creating = false;         // a communicator was being created in both answers
  bool has_counts = false;          // RAS knows the job
  bool is_endpoint_silent = false;  // see Options (outside_look.h)
  std::size_t not_fine = 0;         // processes whose Condition isn't kFine
  Uses uses;                        // GPUs of processes that answer RAS, or are stopped
};

// True if another rank has launched more of some operation.
bool HasFewer(const RasCommunicator& communicator, const RasRank& rank);

// Returns null if the job has no such rank.
const RasRank* RankOf(const Job& job, uint64_t comm_id, int32_t rank);

// Parses WORLD_SIZE or LOCAL_WORLD_SIZE. Returns 0 if not known.
int32_t SizeOf(const std::string& variable);

bool IsOn(const HostGpu& gpu, int32_t pid);

// True if the process may be a rank: it has a context on a GPU, or NVML can't tell. (Launchers and
// PyTorch's data loader workers also load NCCL.)
bool MayBeRank(const HostProcess& process, const std::vector<HostGpu>& gpus);

// Returns the jobs; they point into `seen`. Processes that RAS doesn't know are grouped into jobs
// by user, SLURM_JOB_ID and WORLD_SIZE.
std::vector<Job> JobsOf(const Observation& seen);

}  // namespace nccl_pulse::outside

#endif  // EXPORTER_OUTSIDE_JOB_SNAPSHOTS_H_
