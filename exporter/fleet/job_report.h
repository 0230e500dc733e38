// Formats the result of LookAtJob: the report of `pulse diagnose`, as text or JSON (the verdict in a
// sentence, suspects, waiting processes, and endpoints that did not answer), and words for alerts
// and tables.
//
// Thread: any, no state.
#ifndef EXPORTER_FLEET_JOB_REPORT_H_
#define EXPORTER_FLEET_JOB_REPORT_H_

#include <cstdint>
#include <string>

#include "exporter/fleet/job_look.h"

namespace nccl_pulse {

// In the order in which pages list jobs. A report begins with the state's name in upper case, or with
// UNKNOWN.
enum class JobState : uint8_t {
  kHang,
  kWait,  // only waits that are expected
  kSlow,  // a straggler
  kIncomplete,
  kIdle,
  kEnded,  // no process lives, or all endpoints are silent
  kOk,
  kNew  // not polled yet
};
inline constexpr int kJobStates = 8;
constexpr const char* JobStateName(JobState state) {
  constexpr const char* kNames[kJobStates] = {"hang", "wait",  "slow", "incomplete",
                                              "idle", "ended", "ok",   "new"};
  return kNames[static_cast<int>(state)];
}

// Returns the state that reports, pages and metrics show. A job with a straggler, or with an
// expected wait, is kIncomplete if an endpoint did not answer, or by its health.
JobState StateOf(const JobLook& look);

enum class JobFinding { kNone, kHang, kIncomplete };
constexpr const char* JobFindingName(JobFinding finding) {
  constexpr const char* kNames[] = {"none", "hang", "incomplete"};
  return kNames[static_cast<int>(finding)];
}

// Returns the finding that decides the exit status: kHang for a hang that is not usual; else
// kIncomplete if an endpoint did not answer, or by the job's health (health.h).
JobFinding FindingOfJob(const JobLook& look);

std::string JobText(const JobLook& look);
std::string JobJson(const JobLook& look);
// Returns the first line of JobText: rank, place, time and next step; or that nothing is suspected,
// with the unknowns.
std::string JobSentence(const JobLook& look);

// Returns "rank 2 (node-17, GPU 2) has not called AllReduce; 3 processes wait", for alerts.
std::string RootText(const JobLook& look, const JobRoot& root);
// Returns the late rank, how late it is, and the next step.
std::string StragglerSentence(const JobStraggler& straggler);
// Returns "global rank 35 on node-4 (GPU 3, pid 1003)".
std::string RankWords(const JobRank& rank);
// Returns what a process waits for: "rank 3", "not known", "rank 1, which may wait elsewhere".
std::string WaitedFor(const JobWait& wait);
// Returns the age of a time, for a table. For dumps, whose own time is not known: the time in UTC.
std::string SinceWords(const JobLook& look, int64_t realtime_ns);
std::string DateWords(int64_t realtime_ns);  // "2026-11-28 03:12:40 UTC"

}  // namespace nccl_pulse

#endif  // EXPORTER_FLEET_JOB_REPORT_H_
