// RunRank simulates one rank of a training job of four. GPUs and NCCL are simulated. The plugin,
// which it loads as NCCL does, is real, and so are its callbacks.
//
//   step, 100 ms   forward    4 times: compute, AllGather or ReduceScatter of 8 MiB on "tp"
//                  backward   3 times: compute, AllReduce of 25 MiB on "dp"
//                  its end    AllReduce of 4 bytes on "dp" (the loss); the host waits for it
//
// "dp" has all four ranks; "tp" has ranks 0 and 1, or 2 and 3. The conductor ends a round:
// communicators are destroyed and created again, as in a job's restart.
//
// Thread: one process per rank. Cost: 80 collectives per second.
#ifndef SIMULATION_JOB_H_
#define SIMULATION_JOB_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <string>

#include "plugin/abi/common.h"
#include "simulation/timeline.h"

namespace nccl_pulse::simulation {

inline constexpr uint32_t kRanks = 4;
inline constexpr int kNobody = -1;
inline constexpr uint64_t kStepNs = 100'000'000;

// Memory shared by the conductor and all ranks.
struct SharedJob {
  // Set by the conductor, at any time.
  std::atomic<int> late_rank{kNobody};    // rank whose backward pass begins later than the others'
  std::atomic<uint64_t> late_ns{0};       // its delay
  std::atomic<int> silent_rank{kNobody};  // rank that stops calling on "dp"
  std::atomic<uint32_t> round{0};

  // Between ranks: before the end of a step, rank 0 sets the round of the next one.
  std::array<std::atomic<uint32_t>, 4> round_of_step{};
  SharedTimeline dp;
  std::array<SharedTimeline, kRanks / 2> tp;
};

struct JobOptions {
  std::string plugin;  // path of the library
  std::string driver;  // path of the simulated driver
  abi::DebugLogger logger = nullptr;
};

// Runs a rank until `stop` is set, then finalizes its communicators. False if a library does not
// load, which is logged.
bool RunRank(const JobOptions& options, int rank, SharedJob* shared, const std::atomic<bool>& stop);

}  // namespace nccl_pulse::simulation

#endif  // SIMULATION_JOB_H_
