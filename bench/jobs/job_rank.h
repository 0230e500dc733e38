// One rank of a made-up job while it runs: its program, its stream, and its part in communicators.
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
#include "exporter/diagnosis/pace_history.h"
#include "metrics/snapshot.h"

namespace nccl_pulse {

inline constexpr int64_t kNever = INT64_MAX;

// What is queued on a rank's stream.
struct JobItem {
  const JobStep* step;
  int64_t launched_ns;
  int64_t begun_ns = kNever;
  int64_t work_ns = 0;
  bool is_stuck = false;
  JobStep own;              // of a call that differs from the program's; then `step` is null
  std::size_t awaited = 0;  // of kAwait: how many items of the other stream
  bool is_absent = false;   // of kExchange: it has nothing to exchange this time
  const JobStep& what() const { return step != nullptr ? *step : own; }
};

struct JobStream {
  std::deque<JobItem> queue;
  int64_t gpu_ns = 0;
  std::vector<int64_t> ends_ns;  // of what has ended, in order
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
  int64_t seen_ns = 0;                   // until when its actions are on the page
  std::map<int, JobMember> memberships;  // by group
  std::map<int, int> exchanges;          // that it has come to, by group
  double slow = 1;
  ProcessPace pace;
  int64_t next_page_ns = kNever;

  std::vector<Deed> deeds;      // that are still to be done
  std::vector<JobStep> ending;  // its last step, if it has one
  bool is_ending = false;
  int64_t dies_ns = kNever;  // its GPU does nothing from then on
  int64_t left_ns = kNever;  // `end` has how, kLive: it has finalized its communicators
  ProcessEnd end{};
  bool has_aborted = false;

  std::vector<JobStep>& steps_now() {
    return is_ending ? ending : is_evaluating ? evaluation : program;
  }
};

// How much a rank has to do in a step, by the healthy differences between ranks: 1 is usual.
double LoadOf(const JobRunOptions& options, const JobLayout& layout, int number, int step);
bool IsEvaluation(const JobRunOptions& options, int step);
// Of kInput: how long it waits before a step.
int64_t InputWaitNs(const JobRunOptions& options, const JobLayout& layout, int number, int step);

// What its endpoint reads for a page.
void MakePage(const JobRunOptions& options, int64_t now_ns, RunningRank* rank);

// What its endpoint knows of it. Ends the use of its memberships.
ProcessSnapshot ProcessOf(const JobLayout& layout, const JobRunOptions& options, int number,
                          RunningRank* rank);

}  // namespace nccl_pulse

#endif  // BENCH_JOBS_JOB_RANK_H_
