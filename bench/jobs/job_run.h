// RunJob simulates a job as the plugins of its processes would have measured it. Hosts run ahead of
// their GPUs, GPUs wait for each other in collectives, and a rank may have a fault. Minutes take
// milliseconds, and a seed always gives the same job.
//
// Only the facts that the diagnosis reads are simulated: calls, launches, their begin and end on
// the GPU, and the ring of timed calls. Unless JobLayout::sends_wait is set, a Send completes before
// its receiver arrives, as a small Send does.
//
// Thread: one.
#ifndef BENCH_JOBS_JOB_RUN_H_
#define BENCH_JOBS_JOB_RUN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "bench/jobs/job_layout.h"
#include "exporter/diagnosis/facts/snapshot_set.h"
#include "metrics/snapshot.h"

namespace nccl_pulse {

inline constexpr int kOtherPids = 1000000;  // first pid of another job's processes
inline constexpr int64_t kJobStart = int64_t{1760000000} * 1000000000;

// The fault of a job. "It" is the faulty rank, JobRunOptions::rank; `other`, `group`, `change_step`
// and so on are fields of JobRunOptions.
enum class Fault {
  kNone,
  kHostStuck,        // its program stalls
  kGpuStuck,         // a kernel before its next call does not end
  kProcessGone,      // killed; its endpoint reports the end
  kProcessVanished,  // killed, and no endpoint reports it any longer
  kNodeGone,         // its program stalls, and its node's endpoint does not answer
  kWrongOrder,       // makes two calls of a communicator in the wrong order
  kWrongSize,        // calls with another size
  kWrongRoot,        // calls Broadcast with another root
  kCircle,           // uses two communicators in the wrong order
  // Sends to a rank before receiving from it, and that rank does the same.
  kPeerCircle,
  // Receives from a rank before sending to it, and that rank does the same.
  kReceiveCircle,
  // One of its Recvs from `other` is half as large as the Send, which never ends; or twice as large,
  // and takes two messages.
  kSmallerRecv,
  kLargerRecv,
  // Messages between it and `other` do not arrive. In exchanges some ranks have nothing to send.
  kDeadLink,
  kNetworkStuck,  // a communicator's operation does not end, although all have begun it
  kNotMade,       // it never joins a new communicator
  kNetworkSlow,   // calls between its node and others take ten times as long
  kSlowHost,      // its program takes longer, step after step
  kSlowGpu,       // its GPU's own work takes longer
  kSlowNode,      // all ranks of a node are slow
  kPause,         // healthy: it writes its second checkpoint while the others wait
  kStopped,       // its process is stopped
  kLooked,        // its program stalls; later a debugger stops the process of a waiting rank
  kDriverCall,    // the driver blocks its program and the plugin's thread; the process runs
  kHostPaused,    // all processes of its host stop at once
  kGpuFails,      // its GPU's driver reports an error, and later the drivers of some peers do
  kExits,         // it is in exit()
  kForeign,       // on all GPUs a kernel other than NCCL's does not end, from `change_step` on
  kForeignHost,   // as kForeign, but on its group's GPUs, and the kernels wait for its program
  kLongBefore,    // its program stalls; long before, all ranks waited once for another rank
  kAllPause,      // healthy: all ranks pause to evaluate, and no rank waits
  kSequences,     // healthy: a replica's work varies by step, half to twice as much
  kStages,        // healthy: pipeline stages differ in their work, from the start
  kInput,         // healthy: now and then a rank waits for its input, as long as some steps take
  kQueued,        // healthy: the end of a step is queued behind a long kernel of each GPU
  kMoves,         // healthy: a collective takes long, and its data moves
  // Healthy, from `change_step` on:
  kLonger,      // all ranks have more work, and some replicas more than others
  kEvaluates,   // the job alternates between evaluating and training for `change_steps` each, with
                // another distribution of work over the stages
  kNodePauses,  // a node pauses for `pause_ns`, once
  kStageGrows,  // a stage has more work
};

// Action of a watchdog on ranks that have waited for a long time.
enum class Watchdog {
  kNone,
  kKills,   // kills the process; its endpoint reports the end
  kAborts,  // aborts its communicators: work in flight ends, and they are finalized
};

// An event at one rank, at a given time or at the start of a training step. "It" is that rank.
struct Deed {
  enum class Kind : uint8_t {
    kHalts,   // its program stalls
    kSticks,  // on its GPU, the next kernel other than NCCL's does not end
    kPauses,  // its program pauses for `for_ns`
    kStops,   // a signal stops its process
    kDies,    // its process ends; reason in `end`
    kAborts,  // it aborts its communicators
    kSlows,   // its GPU's own work takes `factor` times as long, until `until_step`
  };
  Kind kind{};
  int rank = 0;
  int64_t at_ns = 0;  // since the start
  int step = -1;      // at the start of this step; -1: at `at_ns`
  int64_t for_ns = 0;
  ProcessEnd end = ProcessEnd::kLost;
  double factor = 1;
  int until_step = INT32_MAX;
  // For kSlows: the rank is slow in every other interval of `period` steps, those with even
  // (`phase` 0) or odd numbers (`phase` 1). Period 0: in all steps.
  int period = 0, phase = 0;
};

// The last step of all programs, and how ranks leave afterwards.
struct JobEnding {
  int step = -1;                            // number of the step; -1: none
  const char* op = "AllReduce";             // its only call, in the largest group
  int size_class = 0, root_size_class = 0;  // of the call; `root_...`: at the root
  uint64_t bytes = 0, root_bytes = 0;       // 0: by the size class
  int root = -1;                            // rank in the group; -1: no root
  int64_t root_work_ns = 0, work_ns = 0;    // the GPUs' own work before the call
  enum class Leave : uint8_t { kStays, kFinalizes, kExits, kUnderscoreExits };
  Leave leave{};
  int64_t within_ns = 0;  // each rank leaves within this time after its last work
};

struct JobRunOptions {
  uint64_t seed = 1;
  Fault fault = Fault::kNone;
  int rank = 0;          // the faulty rank
  int other = -1;        // the rank at the other end of a link or message
  int group = -1;        // index of the communicator that the fault concerns
  RunState run_state{};  // of stopped processes, as far as visible
  int64_t fault_ns = 0;  // begin of the fault, since the start
  // First poll of the endpoints, since the start; or since the second pause (kPause, kAllPause), the
  // stall (kLongBefore), the long kernel (kQueued) or the long call (kMoves).
  int64_t asked_ns = 0;
  int64_t asked_within_ns = 0;  // upper limit of each endpoint's random further delay
  int64_t look_again_ns = 0;    // how long after the first poll RunJob polls; 0: it is the first
  int64_t run_on_ns = 0;        // from the first poll to the simulation's end, for later polls
  double slowness = 1.5;        // factor of the work of slow or busier ranks
  double imbalance = 0.1;       // random variation of work between steps
  bool is_blocking = false;     // hosts wait for each call
  int sampling_exponent = 0;    // n: one launch in 2^n is timed
  // Length of the pause (kPause, kAllPause: the first one; the second is in progress at the poll),
  // or of the long kernel or call. kLooked: time from the fault to the debugger.
  int64_t pause_ns = 0;
  // `change_step`: step at which the fault begins, if it does not begin at `fault_ns`.
  // `change_steps`: of kEvaluates, length of a phase, in steps.
  int change_step = 0, change_steps = 0;
  std::string job_id = "4711";
  bool is_other_job = false;   // true: its processes get pids from kOtherPids on
  bool has_own_hosts = false;  // true: the other job has hosts of its own
  Watchdog watchdog = Watchdog::kNone;
  int64_t watchdog_ns = 0;    // when it acts, since the start
  int64_t page_every_ns = 0;  // scrape interval, 0: never
  int failing_rank = -1;      // its collectives fail once and are retried; -1: none
  int64_t failing_ns = 0;     // first failure, since the start
  int failing_calls = 0;      // number of calls that fail
  std::vector<Deed> deeds;
  JobEnding ending;
  int64_t start_ns = 0;       // begin of the programs
  int attempt = 0;            // restart of the job; each has other pids
  int unmeasured_group = -1;  // a communicator that the plugin has no room to measure; -1: none
  std::string other_job_id;   // job ID on every second node; "": `job_id`
};

// An endpoint's answer to a poll, and the time of the poll by its node's clock.
struct NodeSnapshot {
  SnapshotSet set;
  int64_t asked_realtime_ns = 0;
};

// Simulates the job, and returns its endpoints' answers to one poll.
std::vector<NodeSnapshot> RunJob(const JobLayout& layout, const std::vector<JobGroup>& groups,
                                 const JobRunOptions& options);

}  // namespace nccl_pulse

#endif  // BENCH_JOBS_JOB_RUN_H_
