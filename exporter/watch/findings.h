// The findings of a poll, as plain values for pages, metrics and alerts. They do not point into
// snapshots.
//
// Thread: any, no state.
#ifndef EXPORTER_WATCH_FINDINGS_H_
#define EXPORTER_WATCH_FINDINGS_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "exporter/fleet/address.h"
#include "exporter/fleet/job_look.h"

namespace nccl_pulse {

// A rank and its process; unknown fields are "".
struct WatchedRank {
  std::string comm, rank;  // the communicator of the verdict
  std::string global_rank, hostname, gpu, uuid, pid;
  std::string source;    // "outside": runs without the plugin
  std::string endpoint;  // URL of its node's page
  // NCCL_PULSE_LABELS of its process, or of a process that waits for it.
  std::vector<std::pair<std::string, std::string>> labels;
};

// The evidence for the hangs of processes that share communicators.
struct HangReport {
  // Users of these processes, sorted, as endpoints report them (ProcessSnapshot::user); -1: not
  // known.
  std::vector<int64_t> users;
  std::string json;  // as `pulse diagnose --json` prints it
};

struct JobHang {
  WatchedRank who;  // the first named rank
  std::size_t named = 0;
  std::string verdict, op, first_step;
  std::string text;        // "rank 2 (node-17, GPU 2) has not called AllReduce; 3 processes wait"
  double since_s = 0;      // Unix time
  double lasted_s = 0;     // at the time of the poll
  double job_start_s = 0;  // start of the youngest waiting process
  std::shared_ptr<const HangReport> report;  // null without Watcher::Options::tell
};

struct JobSlow {
  WatchedRank who;  // for a whole host: without rank, pid and GPU
  double seconds_per_second = 0;
  std::string first_step;
};

// In the order of the page.
enum class JobState : uint8_t { kHang, kWait, kSlow, kIncomplete, kIdle, kOk, kNew };
inline constexpr int kJobStates = 7;
constexpr const char* JobStateName(JobState state) {
  constexpr const char* kNames[kJobStates] = {"hang", "wait", "slow", "incomplete",
                                              "idle", "ok",   "new"};
  return kNames[static_cast<int>(state)];
}

// Labels of a process' job. As in the recording rules, the job ID replaces a missing workload.
struct JobName {
  std::string job_id, workload;
  bool operator<(const JobName& other) const {
    return job_id != other.job_id ? job_id < other.job_id : workload < other.workload;
  }
};

// The findings of a poll of one job.
struct JobFindings {
  JobState state = JobState::kNew;
  std::vector<JobHang> hangs;  // without usual waits, and without jobs with hang_alert=off
  std::vector<JobSlow> stragglers;
  std::string sentence, text;  // as `pulse diagnose` says it
  double idle_since_s = 0;     // Unix time, of kIdle
  double silent_since_s =
      0;                    // Unix time since which the hang's endpoints are silent; 0: they answer
  std::size_t heard = 0;    // endpoints
  std::set<JobName> names;  // a job can have several IDs

  // Time of the poll, by the watcher's steady clock.
  std::chrono::steady_clock::time_point looked_at{};
};

struct WatchedJob {
  std::string job_id, workload;  // a job without a workload has its job ID there
  std::vector<std::string> other_ids;
  int64_t processes = 0;
  std::vector<std::string> endpoints;  // URLs
  std::size_t silent = 0;              // endpoints that did not answer in the last round
  JobFindings findings;
};

struct WatchState {
  using Time = std::chrono::steady_clock::time_point;

  double round_s = 0;  // Unix time of the last round's end; 0: none has ended
  Time round_at{};     // its end by the watcher's clock
  double round_seconds = 0;
  std::size_t answered = 0;
  std::map<std::string, std::vector<std::string>> silent;  // endpoints, by what is wrong
  std::string find_error;                                  // ""; or why no endpoints were found
  std::vector<WatchedJob> jobs;                            // jobs in trouble first
};

// Returns when a hang began, by the watcher's clock: the wall clock may step.
WatchState::Time SinceOf(const JobHang& hang, const JobFindings& findings);
// Returns when the job's oldest hang began. The job must hang.
WatchState::Time SinceOf(const WatchedJob& job);
// Returns the job's name for a log. A job without an ID is named by its first endpoint.
std::string NameOf(const WatchedJob& job);

// "http://host:9410/path/"
std::string UrlOf(const Address& address);

// Returns the names that the job's processes give it, normally one; an empty name without processes.
std::set<JobName> NamesOfJob(const JobLook& look);

HangReport HangReportOf(const JobLook& look);

// Returns the findings of a poll of one job. `asked`: the endpoints that were polled.
JobFindings FindingsOf(const JobLook& look, const std::vector<Address>& asked);

}  // namespace nccl_pulse

#endif  // EXPORTER_WATCH_FINDINGS_H_
