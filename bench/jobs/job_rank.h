// What a rank of a made-up job (job_run.h) has before it: its program on the host, and what is queued
// on its GPU.
//
// Thread: one.
#ifndef BENCH_JOBS_JOB_RANK_H_
#define BENCH_JOBS_JOB_RANK_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <vector>

#include "bench/jobs/job_layout.h"
#include "bench/jobs/job_member.h"

namespace nccl_pulse::job_run {

inline constexpr int64_t kNever = INT64_MAX;

// What is queued on a rank's stream.
struct Item {
  const JobStep* step;
  int64_t launched_ns;
  int64_t begun_ns = kNever;
  int64_t work_ns = 0;
  bool is_stuck = false;
  JobStep own;  // of a call that differs from the program's; then `step` is null
  const JobStep& what() const { return step != nullptr ? *step : own; }
};

// One collective of a group.
struct Instance {
  std::size_t came = 0;
  int64_t last_begun_ns = 0;
  const char* op = nullptr;
  int size_class = 0;
  bool is_broken = false;
};

struct Rank {
  std::vector<JobStep> program;
  std::size_t at = 0;
  int64_t host_ns = 0, gpu_ns = 0;
  std::deque<Item> queue;
  bool waits_for_gpu = false, is_halted = false, is_queued = false, has_erred = false;
  bool is_gpu_to_stick = false;
  int steps = 0;
  int64_t seen_ns = 0;                   // until when its actions are on the page
  std::map<int, JobMember> memberships;  // by group
  double slow = 1;
};

}  // namespace nccl_pulse::job_run

#endif  // BENCH_JOBS_JOB_RANK_H_
