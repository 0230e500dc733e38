#include "bench/jobs/job_rank.h"

#include <cmath>
#include <string>

#include "absl/strings/str_format.h"

namespace nccl_pulse {
namespace {

// Returns the same value in [0, 1) for the same arguments.
double ShareAt(const JobRunOptions& options, int a, int b) {
  return JobRandom(options.seed ^ static_cast<uint64_t>(a) << 32 ^ static_cast<uint64_t>(b))
      .Share();
}

}  // namespace

double LoadOf(const JobRunOptions& options, const JobLayout& layout, int number, int step) {
  const int replica = number / layout.tensor % layout.data;
  const int stage = number / layout.tensor / layout.data;
  if (options.fault == Fault::kSequences) return std::exp2(2 * ShareAt(options, replica, step) - 1);
  if (options.fault == Fault::kStages) return 0.7 + 0.8 * ShareAt(options, stage, -1);
  const bool has_changed = step >= options.change_step;
  if (options.fault == Fault::kStageGrows) {
    const int rank_of = options.rank / layout.tensor / layout.data;
    return has_changed && stage == rank_of ? options.slowness : 1;
  }
  if (options.fault == Fault::kEvaluates) {
    const double usual = 0.7 + 0.8 * ShareAt(options, stage, -1);
    return IsEvaluation(options, step) ? 0.7 + 0.8 * ShareAt(options, stage, -2) : usual;
  }
  if (options.fault == Fault::kLonger) {
    // Before the change, stages also differ by up to a factor of four.
    const double usual = std::exp2(ShareAt(options, replica, step) - 0.5) *
                         std::exp2(2 * ShareAt(options, stage, -3) - 1);
    if (!has_changed) return usual;
    return usual * (options.slowness + 0.3 * ShareAt(options, replica, -1));
  }
  return 1;
}

bool IsEvaluation(const JobRunOptions& options, int step) {
  return options.fault == Fault::kEvaluates && step >= options.change_step &&
         (step - options.change_step) / options.change_steps % 2 == 0;
}

void MakePage(const JobRunOptions& options, int64_t now_ns, RunningRank* rank) {
  ProcessSnapshot process;
  process.sampling_exponent = options.sampling_exponent;
  for (auto& [group, member] : rank->memberships) {
    CommunicatorSnapshot& communicator = process.communicators.emplace_back();
    communicator.comm_id = member.snapshot().comm_id;
    communicator.calls = member.snapshot().calls;
    communicator.latencies = member.latencies();
  }
  rank->pace.Update(process, kJobStart + now_ns);
}

int64_t InputWaitNs(const JobRunOptions& options, const JobLayout& layout, int number, int step) {
  constexpr double kShareOfSteps = 0.02;
  constexpr int64_t kStepNs = 30000000;
  if (ShareAt(options, number, step) >= kShareOfSteps) return 0;
  const double steps = 1 + 3 * ShareAt(options, number, -1 - step);
  return static_cast<int64_t>(steps * layout.slowdown * kStepNs);
}

ProcessSnapshot ProcessOf(const JobLayout& layout, const JobRunOptions& options, int number,
                          RunningRank* rank) {
  const int node = layout.NodeOf(number);
  ProcessSnapshot process;
  process.pid = (options.is_other_job ? kOtherPids : 1000) + 100 * options.attempt +
                number % layout.gpus_per_node;
  process.plugin_version = "0.1.0";
  process.hostname = absl::StrFormat("%s-%03d", options.has_own_hosts ? "other" : "node", node);
  process.global_rank = std::to_string(number);
  process.local_rank = std::to_string(number % layout.gpus_per_node);
  process.job_id =
      node % 2 == 1 && !options.other_job_id.empty() ? options.other_job_id : options.job_id;
  process.nccl_api_version = 6;
  process.sampling_exponent = options.sampling_exponent;
  process.start_realtime_ns = kJobStart + options.start_ns - int64_t{1000000000};
  process.poller = PollerState::kRunning;
  const bool is_gone = options.fault == Fault::kProcessGone && number == options.rank;
  process.last_poll_realtime_ns = kJobStart + rank->seen_ns;
  process.run_state = rank->run_state;
  if (options.fault == Fault::kExits && number == options.rank) {
    process.poller = PollerState::kEnded;
  }
  if (is_gone) {
    process.end = ProcessEnd::kLost;
    process.end_realtime_ns = kJobStart + rank->seen_ns;
  }
  if (rank->end != ProcessEnd::kLive) {
    process.end = rank->end;
    process.end_realtime_ns = kJobStart + rank->seen_ns;
  }
  if (options.page_every_ns != 0) MakePage(options, rank->seen_ns, rank);
  process.pace = rank->pace.BeforeAndNow();
  for (auto& [group, member] : rank->memberships) {
    if (group == options.unmeasured_group) {
      ++process.unmeasured_communicators;
      continue;
    }
    process.communicators.push_back(member.Take(rank->seen_ns));
    process.communicators.back().finalized = rank->left_ns <= rank->seen_ns;
    if (rank->driver_error == 0) continue;
    CommunicatorSnapshot& failed = process.communicators.back();
    failed.has_heartbeat = false;
    failed.driver_error = rank->driver_error;
    failed.driver_error_realtime_ns = kJobStart + rank->driver_error_ns;
  }
  return process;
}

}  // namespace nccl_pulse
