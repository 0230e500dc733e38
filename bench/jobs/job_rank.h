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

// An entry in a rank's stream.
struct JobItem {
  const JobStep* step;
  int64_t launched_ns;
  int64_t begun_ns = kNever;
  int64_t work_ns = 0;
  bool is_stuck = false;
  JobStep own;              // a call that differs from the program's; `step` is null then
  std::size_t awaited = 0;  // of kAwait: number of items of the other stream
  bool is_absent = false;   // of kExchange: nothing to exchange this time
  const JobStep& what() const { return step != nullptr ? *step : own; }
};

struct JobStream {
  std::deque<JobItem> queue;
  int64_t gpu_ns = 0;
  std::vector<int64_t> ends_ns;  // when items ended, in order
};

struct RunningRank {
  std::vector<JobStep> program;
  std::vector<JobStep> evaluation;  // of kEvaluates
  bool is_evaluating = false;
  std::size_t at = 0;
  int64_t host_ns = 0;
  JobStream streams[kJobStreams];
  bool waits_for_gpu = false, is_halted = false, is_queued = false, has_erred = false;
  bool is_gpu_to_stick = false;
  RunState run_state{};
  uint32_t driver_error = 0;
  int64_t driver_error_ns = 0;
  int steps = 0;
  int64_t seen_ns = 0;                   // the endpoint's page shows its actions up to this time
  std::map<int, JobMember> memberships;  // by group
  std::map<int, int> exchanges;          // exchanges reached, by group
  double slow = 1;
  ProcessPace pace;
  int64_t next_page_ns = kNever;

  std::vector<Deed> deeds;      // not done yet
  std::vector<JobStep> ending;  // its last step, if any
  bool is_ending = false;
  int64_t dies_ns = kNever;  // its GPU does nothing after this
  int64_t left_ns = kNever;  // reason in `end`; kLive: it has only finalized its communicators
  ProcessEnd end{};
  bool has_aborted = false;

  std::vector<JobStep>& steps_now() {
    return is_ending ? ending : is_evaluating ? evaluation : program;
  }
};

// Returns a rank's work in a step relative to the usual 1, with the healthy differences between
// ranks.
double LoadOf(const JobRunOptions& options, const JobLayout& layout, int number, int step);
bool IsEvaluation(const JobRunOptions& options, int step);
// For kInput: returns how long the rank waits before a step.
int64_t InputWaitNs(const JobRunOptions& options, const JobLayout& layout, int number, int step);

// Updates the endpoint's page from the rank.
void MakePage(const JobRunOptions& options, int64_t now_ns, RunningRank* rank);

// Returns what the rank's endpoint knows. Its memberships must not be used afterwards.
ProcessSnapshot ProcessOf(const JobLayout& layout, const JobRunOptions& options, int number,
                          RunningRank* rank);

}  // namespace nccl_pulse

#endif  // BENCH_JOBS_JOB_RANK_H_
