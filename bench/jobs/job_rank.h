// RunningRank is one rank of a simulated job at run time: program, streams and communicators.
//
// Times are nanoseconds since kJobStart. Thread: one.
#ifndef BENCH_JOBS_JOB_RANK_H_
#define BENCH_JOBS_JOB_RANK_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <vector>

#include "bench/jobs/job_layout.h"
#include "bench/jobs/job_member.h"
#include "bench/jobs/job_run.h"
#include "exporter/diagnosis/stragglers/pace_history.h"
#include "metrics/snapshot.h"

namespace nccl_pulse {

inline constexpr int64_t kNever = INT64_MAX;

// An entry in a rank's stream: a kernel, a call, or a wait for another stream.
struct JobItem {
  const JobStep* step;
  int64_t launched_ns;
  int64_t begun_ns = kNever;
  int64_t work_ns = 0;
  bool is_stuck = false;    // never ends
  JobStep own;              // copy of a call, since the program may change; then `step` is null
  std::size_t awaited = 0;  // of kAwait: number of the other stream's items that must end before
  bool is_absent = false;   // of kExchange: nothing to exchange this time
  const JobStep& what() const { return step != nullptr ? *step : own; }
};

struct JobStream {
  std::deque<JobItem> queue;
  int64_t gpu_ns = 0;            // time up to which the GPU has executed the stream
  std::vector<int64_t> ends_ns;  // when items ended, in order
};

struct RunningRank {
  std::vector<JobStep> program;
  std::vector<JobStep> evaluation;  // of kEvaluates
  bool is_evaluating = false;
  std::size_t at = 0;   // index of the next action in steps_now()
  int64_t host_ns = 0;  // time up to which the host has run
  JobStream streams[kJobStreams];
  // waits_for_gpu: the host synchronizes. is_halted: it does nothing further. is_queued: the
  // simulation will advance this rank. has_erred: a fault that happens once has happened.
  bool waits_for_gpu = false, is_halted = false, is_queued = false, has_erred = false;
  bool is_gpu_to_stick = false;  // the next kernel other than NCCL's does not end
  RunState run_state{};
  uint32_t driver_error = 0;
  int64_t driver_error_ns = 0;
  int steps = 0;                         // steps begun
  int64_t seen_ns = 0;                   // the endpoint's answer shows its actions up to this time
  std::map<int, JobMember> memberships;  // by group
  std::map<int, int> exchanges;          // number of exchanges called, by group
  double slow = 1;                       // factor of its work, from the fault on
  ProcessPace pace;                      // as its endpoint computes it at each scrape
  int64_t next_page_ns = kNever;         // time of the next scrape

  std::vector<Deed> deeds;      // scheduled events; most are removed when they happen
  std::vector<JobStep> ending;  // its last step, if JobRunOptions::ending has one
  bool is_ending = false;
  int64_t dies_ns = kNever;  // neither host nor GPU does anything after this
  int64_t left_ns = kNever;  // when it finalized its communicators
  ProcessEnd end{};          // how its process ended; kLive: it has not ended
  bool has_aborted = false;  // it aborted its communicators at dies_ns

  std::vector<JobStep>& steps_now() {
    return is_ending ? ending : is_evaluating ? evaluation : program;
  }
};

// Returns the factor of a rank's work in a step: 1, except under faults that change how much work
// ranks have (kStages, for one). `number`: the global rank, as below.
double LoadOf(const JobRunOptions& options, const JobLayout& layout, int number, int step);
bool IsEvaluation(const JobRunOptions& options, int step);
// Returns how long the rank waits for input before a step (Fault::kInput).
int64_t InputWaitNs(const JobRunOptions& options, const JobLayout& layout, int number, int step);

// Simulates a scrape of the rank's endpoint, which updates the pace.
void MakePage(const JobRunOptions& options, int64_t now_ns, RunningRank* rank);

// Returns what the rank's endpoint knows. Its memberships must not be used afterwards.
ProcessSnapshot ProcessOf(const JobLayout& layout, const JobRunOptions& options, int number,
                          RunningRank* rank);

}  // namespace nccl_pulse

#endif  // BENCH_JOBS_JOB_RANK_H_
