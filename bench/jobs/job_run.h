// A made-up job in simulated time, as the plugins of its processes would have measured it: hosts
// run ahead of their GPUs, GPUs wait for each other in collectives, and somebody may do something
// wrong. Minutes take milliseconds, and the same seed gives the same job.
//
// Of NCCL only what the diagnosis looks at is made up: calls, launches, when they began and ended
// on the GPU, and the ring of timed calls. A Send ends by itself, as a small one does.
//
// Thread: one.
#ifndef BENCH_JOBS_JOB_RUN_H_
#define BENCH_JOBS_JOB_RUN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "bench/jobs/job_layout.h"
#include "exporter/diagnosis/snapshot_set.h"
#include "metrics/snapshot.h"

namespace nccl_pulse {

inline constexpr int kOtherPids = 1000000;  // of another job's processes, from here on
inline constexpr int64_t kJobStart = int64_t{1760000000} * 1000000000;

enum class Fault {
  kNone,
  kHostStuck,        // its program does not go on
  kGpuStuck,         // a kernel before its next call does not end
  kProcessGone,      // killed, and its endpoint knows
  kProcessVanished,  // killed, and nobody knows of it any longer
  kNodeGone,
  kWrongOrder,  // it makes two calls of a communicator the other way round
  kWrongSize,   // it calls with another size
  kWrongRoot,   // it calls Broadcast with another root
  kCircle,      // it uses two communicators the other way round
  // It sends to a rank before it receives from it, which does the same.
  kPeerCircle,
  // What it and `other` send each other does not come. In exchanges some ranks have nothing to
  // send.
  kDeadLink,
  kNetworkStuck,  // a communicator's operation does not end, although all have begun it
  kNotMade,       // a communicator is made to which it does not come
  kNetworkSlow,   // a node's communicators take ten times as long
  kSlowHost,      // its program takes longer, step after step
  kSlowGpu,
  kSlowNode,    // all ranks of a node do
  kPause,       // healthy: it writes a checkpoint, as it did before, and the others wait
  kStopped,     // its process is stopped
  kLooked,      // its program does not go on, and later a debugger holds another one, which waits
  kDriverCall,  // its program and the plugin's thread are held by the driver; the process runs
  kHostPaused,  // all processes of its host stop at once
  kGpuFails,    // its GPU's driver answers with an error, and that of some that it works with later
  kExits,       // it is in exit()
  kForeign,     // from `change_step` on a kernel that is not NCCL's does not end, on all GPUs
  kForeignHost,  // the same on the GPUs of its group, which wait there for its program
  kLongBefore,   // its program does not go on, long after all have waited for another one, once
  kAllPause,     // healthy: all stop to evaluate, and nobody waits
  kSequences,  // healthy: what a replica has to do differs from step to step, half to twice as much
  kStages,     // healthy: stages of the pipeline have more or less to do, always
  kInput,      // healthy: now and then a rank waits for its input, some steps long
  kQueued,     // healthy: the end of a step stands behind a long kernel of each GPU
  kMoves,      // healthy: a collective takes long, and its data moves
  // Healthy, from `change_step` on:
  kLonger,      // all have more to do, and some replicas more than others
  kEvaluates,   // it evaluates for `change_steps`, then trains as long, and so on; the stages'
                // shares of that work are others
  kNodePauses,  // a node does not go on for `pause_ns`, once
  kStageGrows,  // a stage has more to do
};

// What becomes of some of the ranks that have waited for long.
enum class Watchdog {
  kNone,
  kKills,   // the process, and its endpoint knows
  kAborts,  // its communicators: what was in flight ends, and they are finalized
};

// An action of one rank, or on it, at a moment or at the beginning of a step.
struct Deed {
  enum class Kind : uint8_t {
    kHalts,   // its program does not go on
    kSticks,  // its GPU: the next kernel that is not NCCL's does not end
    kPauses,  // its program, for `for_ns`
    kStops,   // its process, by a signal
    kDies,    // its process: `end`
    kAborts,  // its communicators
    kSlows,   // its GPU's own work takes `factor` times as long, up to `until_step`
  };
  Kind kind{};
  int rank = 0;
  int64_t at_ns = 0;  // since the start
  int step = -1;      // -1: `at_ns` counts
  int64_t for_ns = 0;
  ProcessEnd end = ProcessEnd::kLost;
  double factor = 1;
  int until_step = INT32_MAX;
  int period = 0, phase = 0;  // of kSlows: so many steps by turns, in turn 0 or 1; 0: all of them
};

// The last step of all programs, and how ranks leave afterwards.
struct JobEnding {
  int step = -1;  // -1: it has none
  const char* op = "AllReduce";
  int size_class = 0, root_size_class = 0;
  uint64_t bytes = 0, root_bytes = 0;     // 0: by the size class
  int root = -1;                          // a rank of the group
  int64_t root_work_ns = 0, work_ns = 0;  // own work of GPUs in front of it
  enum class Leave : uint8_t { kStays, kFinalizes, kExits, kUnderscoreExits };
  Leave leave{};
  int64_t within_ns = 0;  // each rank leaves at most that long after its last work
};

struct JobRunOptions {
  uint64_t seed = 1;
  Fault fault = Fault::kNone;
  int rank = 0;          // who does it
  int other = -1;        // of kDeadLink: the other end
  int group = -1;        // of kWrongOrder, kWrongSize, kCircle, kNetworkStuck, kMoves, kForeignHost
  RunState run_state{};  // of processes that do not run, as far as is seen
  int64_t fault_ns = 0;  // from when on, since the start
  // When the endpoints are asked, since the start; of a pause, since the second one.
  int64_t asked_ns = 0;
  int64_t asked_within_ns = 0;  // each somewhat later than that, by its node
  int64_t look_again_ns = 0;    // how much later than `asked_ns` this look is ...
  int64_t run_on_ns = 0;        // ... of the last one: all looks are at the same job then
  double slowness = 1.5;        // of slow ones, from `fault_ns` on; and of what has more to do
  double imbalance = 0.1;       // how much work differs from step to step, at random
  bool is_blocking = false;     // hosts wait for each call
  int sampling_exponent = 0;
  int64_t pause_ns = 0;                   // the first one; the second is in progress when asked
  int change_step = 0, change_steps = 0;  // of kNotMade: before this step
  std::string job_id = "4711";
  bool is_other_job = false;   // its processes have other numbers
  bool has_own_hosts = false;  // of that one
  Watchdog watchdog = Watchdog::kNone;
  int64_t watchdog_ns = 0;    // when it acts, since the start
  int64_t page_every_ns = 0;  // how often endpoints are scraped, 0: never
  // A rank whose collectives fail at that time: it makes each again. -1: none do.
  int failing_rank = -1;
  int64_t failing_ns = 0;
  int failing_calls = 0;
  std::vector<Deed> deeds;
  JobEnding ending;
  int64_t start_ns = 0;       // when programs begin
  int attempt = 0;            // processes of each attempt have other numbers
  int unmeasured_group = -1;  // a communicator beyond the plugin's limit
  std::string other_job_id;   // of the processes of every second node; "": `job_id`
};

// What the endpoint of each node knows when it is asked, and when that is, by its clock.
struct NodeSnapshot {
  SnapshotSet set;
  int64_t asked_realtime_ns = 0;
};

std::vector<NodeSnapshot> RunJob(const JobLayout& layout, const std::vector<JobGroup>& groups,
                                 const JobRunOptions& options);

}  // namespace nccl_pulse

#endif  // BENCH_JOBS_JOB_RUN_H_
