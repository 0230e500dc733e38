// Turns what RAS, NVML and /proc know of jobs into the snapshots that the diagnosis reads, so that
// one engine judges jobs with and without the plugin.
//
//   source  fact                              becomes
//   RAS     counts moved between two answers  the communicator makes progress
//           counts stand and differ           ranks with more are in flight, unless their GPU has run
//                                             nothing; ranks with the fewest have not called the next
//                                             collective
//           counts stand and are equal        GPUs decide
//           rank missing, considered dead     its process has ended
//           rank missing otherwise            it is not seen
//   NVML    a GPU was busy for the whole      its rank is in flight
//           time, and used no memory
//           a GPU has run nothing             its rank has not called what the busy ones wait in, if
//                                             at most half of the known GPUs are idle
//           any                               a fact of its rank in the graph of waits
//   /proc   T, t                              its process is stopped
//
// A rank that is stopped, gone or missing holds up the others if none of their GPUs is idle.
//
// GPUs that are all busy say nothing: they may replay CUDA graphs that stay in the cache.
//
// A count compares as "has launched fewer", not as "has not called": the host may be inside NCCL.
// Broadcast and Reduce let ranks leave before others have come, so their counts alone prove no wait.
//
// Thread: any, no state. Cost: linear in the ranks of all communicators.
#ifndef EXPORTER_OUTSIDE_JOB_SNAPSHOTS_H_
#define EXPORTER_OUTSIDE_JOB_SNAPSHOTS_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "exporter/diagnosis/facts/snapshot_set.h"
#include "exporter/node/gpu_use.h"
#include "exporter/outside/host_processes.h"
#include "exporter/outside/ras_answer.h"

namespace nccl_pulse::outside {

// By the communicator's id.
using Communicators = std::map<uint64_t, RasCommunicator>;

struct Observation {
  Communicators before, after;         // the threshold apart
  bool proves_absence = true;          // all of these answers
  bool is_creating = false;            // in both, a communicator was being created
  int64_t before_ns = 0, now_ns = 0;   // Unix time
  int64_t since_ns = 0;                // GPUs have waited since then; at most before_ns
  std::vector<HostProcess> processes;  // of this host, by pid
  std::vector<HostProcess> unloaded;   // likewise
  std::vector<HostGpu> gpus;           // since before_ns, or as far back as NVML remembers
  std::set<std::string> addresses;     // of this host
  std::string hostname;
  bool is_endpoint_silent = false;  // see Options
};

// True if a count of this communicator went back: one of the answers was wrong, and RAS is asked
// again.
bool WentBack(const RasCommunicator& before, const RasCommunicator& after);

struct PlaceFacts {
  const HostProcess* local = nullptr;  // null: it is of another host
  RunState state{};                    // kUnknown likewise
  int gpu = -1;                        // NVML's index
  GpuUse gpu_use{};
  bool is_missing = false, is_dead = false;  // as RAS says
};

// A process on one GPU: host, its own pid, and NVML's index of the GPU, as RAS calls them.
using Place = std::tuple<std::string, int32_t, int>;
inline Place PlaceOf(const RasRank& rank) { return {rank.host, rank.pid, rank.nvml_dev}; }

struct Job {
  SnapshotSet set;
  std::map<Place, PlaceFacts> places;
  Communicators communicators;
  std::vector<const HostProcess*> unloaded;  // its ranks of this host that have not loaded NCCL
  std::size_t moved = 0;                     // communicators whose counts moved
  bool is_creating = false;
  bool has_counts = false;                      // RAS knows it
  bool is_endpoint_silent = false;              // see Options
  std::size_t busy = 0, idle = 0, unclear = 0;  // places, by their GPUs
};

// Null: the job has no such rank.
const PlaceFacts* FactsOf(const Job& job, uint64_t comm_id, int32_t rank);

// WORLD_SIZE or LOCAL_WORLD_SIZE; 0: not known.
int32_t SizeOf(const std::string& variable);

// True if the process may be a rank: it has a context on a GPU, or NVML can't say. (A launcher and
// PyTorch's workers for data have NCCL loaded, too.)
bool MayBeRank(const HostProcess& process, const std::vector<HostGpu>& gpus);

// Points into `seen`. Processes that RAS doesn't know are a job by user, SLURM_JOB_ID and WORLD_SIZE.
std::vector<Job> JobsOf(const Observation& seen);

}  // namespace nccl_pulse::outside

#endif  // EXPORTER_OUTSIDE_JOB_SNAPSHOTS_H_
