// A training job of four ranks, made up: what a rank's process does. GPUs and NCCL are simulated;
// the plugin, which it loads as NCCL does, is real, and so are the callbacks that it makes.
//
//   step, 100 ms   forward    4 times: compute, AllGather or ReduceScatter of 8 MiB on "tp"
//                  backward   3 times: compute, AllReduce of 25 MiB on "dp"
//                  its end    AllReduce of 4 bytes on "dp" (the loss); the host waits for it
//
// "dp" has all four ranks, "tp" ranks 0 and 1, and 2 and 3. A round ends when the conductor says
// so: the communicators are destroyed and made anew, as when a job is started again.
//
// Thread: a process for each rank. Cost: 80 collectives a second.
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

// In memory that the conductor and all ranks share.
struct SharedJob {
  // What the conductor wants, at any time.
  std::atomic<int> late_rank{kNobody};    // its backward pass begins later than the others'
  std::atomic<uint64_t> late_ns{0};       // by so much
  std::atomic<int> silent_rank{kNobody};  // it calls nothing on "dp" any more
  std::atomic<uint32_t> round{0};

  // Between the ranks: rank 0 says before the end of a step which round the next one is of.
  std::array<std::atomic<uint32_t>, 4> round_of_step{};
  SharedTimeline dp;
  std::array<SharedTimeline, kRanks / 2> tp;
};

struct JobOptions {
  std::string plugin;  // path of the library
  std::string driver;  // path of the simulated driver's
  abi::DebugLogger logger = nullptr;
};

// A rank's life; returns when `stop` is set, after its communicators are finalized. False when a
// library does not load: the logger was told.
bool RunRank(const JobOptions& options, int rank, SharedJob* shared, const std::atomic<bool>& stop);

}  // namespace nccl_pulse::simulation

#endif  // SIMULATION_JOB_H_
