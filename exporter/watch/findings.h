// These values are kept of a look at a job. They do not point into its snapshots.
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

// This is what a watcher knows after a round, as plain values for its pages.

// A rank and its process; "" where that is not known.
struct WatchedRank {
  std::string comm, rank;  // of the communicator by which it is named
  std::string global_rank, hostname, gpu, uuid, pid;
  std::string source;    // "outside": it runs without the plugin
  std::string endpoint;  // URL of the page of its node
  // The user's own (NCCL_PULSE_LABELS), of its process, or of one that waits for it.
  std::vector<std::pair<std::string, std::string>> labels;
};

// The evidence for the hangs of processes that share communicators.
struct HangReport {
  // Users of all these processes, in order; -1: not known. An endpoint's word (ProcessSnapshot::user).
  std::vector<int64_t> users;
  std::string json;  // as `pulse diagnose --json` prints it
};

struct JobHang {
  WatchedRank who;  // the first that is named
  std::size_t named = 0;
  std::string verdict, op, first_step;
  std::string text;        // "rank 2 (node-17, GPU 2) has not called AllReduce; 3 processes wait"
  double since_s = 0;      // Unix time
  double lasted_s = 0;     // when it was looked at
  double job_start_s = 0;  // when the youngest process that waits began
  std::shared_ptr<const HangReport> report;  // null where nobody is told of hangs
};

struct JobSlow {
  WatchedRank who;  // of a whole host: without rank, pid and GPU
  double seconds_per_second = 0;
  std::string first_step;
};

// A page shows them in this order.
enum class JobState : uint8_t { kHang, kWait, kSlow, kIncomplete, kIdle, kOk, kNew };
inline constexpr int kJobStates = 7;
constexpr const char* JobStateName(JobState state) {
  constexpr const char* kNames[kJobStates] = {"hang", "wait", "slow", "incomplete",
                                              "idle", "ok",   "new"};
  return kNames[static_cast<int>(state)];
}

// It says which job a process belongs to, for its labels. The workload is the job id where it has none, as
// in the recording rules.
struct JobName {
  std::string job_id, workload;
  bool operator<(const JobName& other) const {
    return job_id != other.job_id ? job_id < other.job_id : workload < other.workload;
  }
};

// A look at a job has found this.
struct JobFindings {
  JobState state = JobState::kNew;
  std::vector<JobHang> hangs;  // no usual waits, and none of a job with hang_alert=off
  std::vector<JobSlow> stragglers;
  std::string sentence, text;  // as `pulse diagnose` says it
  double idle_since_s = 0;     // Unix time, of kIdle
  double silent_since_s =
      0;                    // Unix time: the endpoints of the hang are silent since; 0: they answer
  std::size_t heard = 0;    // endpoints
  std::set<JobName> names;  // a job can have several IDs
  // The watcher's clock said so then.
  std::chrono::steady_clock::time_point looked_at{};
};

struct WatchedJob {
  std::string job_id, workload;  // workload: the job id where the job has none
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
  std::string find_error;                                  // "" where endpoints could be found
  std::vector<WatchedJob> jobs;                            // those in trouble first
};

// Returns when a hang began, by the watcher's clock: the wall clock may step.
WatchState::Time SinceOf(const JobHang& hang, const JobFindings& findings);
// Returns when the oldest hang of a job that hangs began.
WatchState::Time SinceOf(const WatchedJob& job);
// Returns the job's name for a log. A job without an ID is named by its first endpoint.
std::string NameOf(const WatchedJob& job);

// "http://host:9410/path/"
std::string UrlOf(const Address& address);

// Returns the names that the job's processes give it: one as a rule.
std::set<JobName> NamesOfJob(const JobLook& look);

HangReport HangReportOf(const JobLook& look);

// `look`: at one job. `asked`: the endpoints to which its places refer.
JobFindings FindingsOf(const JobLook& look, const std::vector<Address>& asked);

}  // namespace nccl_pulse

#endif  // EXPORTER_WATCH_FINDINGS_H_
