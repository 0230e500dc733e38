// The findings of a watcher (watcher.h) about each job, as plain values for pages, metrics and
// alerts. They do not point into snapshots. A round polls all endpoints for summaries, and some
// jobs for a diagnosis; these polls give the findings.
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
#include "exporter/fleet/job_report.h"

namespace nccl_pulse {

// A rank and its process; unknown fields are "".
struct WatchedRank {
  std::string comm, rank;  // communicator's ID and the rank in it
  std::string global_rank, hostname, gpu, uuid, pid;
  std::string source;    // "outside": the process runs without the plugin
  std::string endpoint;  // URL of its node's page
  // NCCL_PULSE_LABELS of its process or, if that is not known, of a process that takes part in its
  // hang.
  std::vector<std::pair<std::string, std::string>> labels;
};

// The evidence for the hangs of processes that share communicators.
struct HangReport {
  // Users of these processes, sorted, as endpoints report them (ProcessSnapshot::user); -1: not
  // known.
  std::vector<int64_t> users;
  std::string json;  // as `pulse diagnose --json` prints it
};

// A hang of a job.
struct JobHang {
  WatchedRank suspect;    // first suspect; without suspects only the communicator
  std::size_t named = 0;  // number of suspects
  // Kind of hang (HangVerdictName), NCCL operation, and advice on what to do first.
  std::string verdict, op, first_step;
  std::string text;        // "rank 2 (node-17, GPU 2) has not called AllReduce; 3 processes wait"
  double since_s = 0;      // Unix time
  double lasted_s = 0;     // age at the time of the poll
  double job_start_s = 0;  // Unix time when the youngest process that takes part started
  std::shared_ptr<const HangReport> report;  // null without Watcher::Options::tell
};

// A straggler of a job.
struct JobSlow {
  WatchedRank suspect;            // without `comm` and `rank`; for a whole host no process
  double seconds_per_second = 0;  // time that other ranks wait for it, per second
  std::string first_step;         // advice on what to do first
};

// A job's names, from its processes' labels. As in Prometheus' recording rules (deploy/prometheus),
// the job ID replaces a missing workload.
struct JobName {
  std::string job_id, workload;
  bool operator<(const JobName& other) const {
    return job_id != other.job_id ? job_id < other.job_id : workload < other.workload;
  }
};

// The findings of the last poll of a job.
struct JobFindings {
  JobState state = JobState::kNew;
  bool is_stalled = false;     // a hang or an expected wait, whatever its state
  std::vector<JobHang> hangs;  // without expected waits; none if the job has hang_alert=off
  std::vector<JobSlow> stragglers;
  std::string sentence, text;  // as `pulse diagnose` prints them: in one sentence, and in full
  double idle_since_s = 0;     // with kIdle: Unix time
  double silent_since_s = 0;   // Unix time when the hang's endpoints fell silent; 0: they answer
  std::size_t heard = 0;       // number of endpoints that answered
  std::set<JobName> names;     // a job can have several IDs

  // Time of the poll, by the watcher's steady clock.
  std::chrono::steady_clock::time_point looked_at{};
};

struct WatchedJob {
  std::string job_id, workload;        // see JobName
  std::vector<std::string> other_ids;  // if its processes have several job IDs
  int64_t processes = 0;
  std::vector<std::string> endpoints;  // URLs
  bool is_heard = false;               // an endpoint answered within Watcher::kBelieved
  JobFindings findings;
};

// Everything that a watcher knows after a round.
struct WatchState {
  using Time = std::chrono::steady_clock::time_point;

  double round_s = 0;        // Unix time of the last round's end; 0: none has ended
  Time round_at{};           // end of the last round, by the watcher's steady clock
  double round_seconds = 0;  // the round's duration
  std::size_t answered = 0;  // number of endpoints that sent a summary
  std::map<std::string, std::vector<std::string>> silent;  // endpoints, by what is wrong
  std::string find_error;                                  // ""; or why no endpoints were found
  std::vector<WatchedJob> jobs;                            // jobs in trouble first
};

// Returns when a hang of these findings began, by the watcher's clock: the wall clock may step.
WatchState::Time SinceOf(const JobHang& hang, const JobFindings& findings);
// Returns when the job's oldest hang began. The job must hang.
WatchState::Time SinceOf(const WatchedJob& job);
// Returns the job's name for a log. A job without an ID is named by its first endpoint.
std::string NameOf(const WatchedJob& job);

// "http://host:9410/path/"
std::string UrlOf(const Address& address);

// Returns the names that the job's processes give it, normally one; an empty name without
// processes. `look`, here and below: the answers of a poll of one job.
std::set<JobName> NamesOfJob(const JobLook& look);

HangReport HangReportOf(const JobLook& look);

// `asked`: the endpoints that were polled.
JobFindings FindingsOf(const JobLook& look, const std::vector<Address>& asked);

}  // namespace nccl_pulse

#endif  // EXPORTER_WATCH_FINDINGS_H_
