// LookAtJob polls the endpoints of a job and diagnoses the union of their answers, for `pulse
// diagnose`.
//
// A hang is reported only if its communicator hangs in two consecutive polls: endpoints answer at
// different moments, and progress in between could look like one rank behind another. So there is a
// second poll only after a first that found a hang, and seldom a third. One poll suffices if the
// previous LookAtJob with the same JobLookMemory found the same hangs, with the same verdicts and
// ranks, and all of them began before its last poll.
//
// More polls follow if a rank seems late but a poll has too few common calls to name it: an
// endpoint keeps the last 32 calls of each communicator. These polls end after `most_looks` polls,
// or after the time of `most_looks` pauses, because each one also waits for endpoints without answer.
//
// Thread: the caller's; blocks. Memory: `most_bytes` of snapshots, and half of that for answers in
// transit, whatever endpoints answer. CPU time: at most `most_time` for unpacking and reading all
// answers, plus kLeastShare for each. One answer may use a quarter of the remaining time, or
// kLeastShare if that is more (WorkBudget). If it needs more, its endpoint counts as not answered.
#ifndef EXPORTER_FLEET_JOB_LOOK_H_
#define EXPORTER_FLEET_JOB_LOOK_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "exporter/diagnosis/diagnosis_result.h"
#include "exporter/diagnosis/facts/last_heard.h"
#include "exporter/diagnosis/health.h"
#include "exporter/diagnosis/job_verdict.h"
#include "exporter/fleet/http_client.h"
#include "exporter/fleet/ras_report.h"
#include "exporter/fleet/snapshot_union.h"

namespace nccl_pulse {

inline constexpr uint64_t kMostMemoryBytes = uint64_t{384} << 20;   // snapshots of all endpoints
inline constexpr uint64_t kMostEndpointBytes = uint64_t{48} << 20;  // snapshots of one endpoint
// Reserved for the snapshots of each endpoint that has not answered yet: 8 ranks with 3
// communicators each take 112 KiB.
inline constexpr uint64_t kReservedBytes = uint64_t{128} << 10;
// Answers older than this (header Age) are not used: their ranks would be blamed for calls that
// they have made since.
inline constexpr std::chrono::seconds kMostAge{3};

struct JobLook {
  bool is_of_dumps = false;  // the facts come from Flight Recorder dumps (dump_look.h)
  // A sentence about the sources of a job that is diagnosed from outside (exporter/outside); "" for
  // endpoints or dumps.
  std::string outside;
  std::size_t endpoints = 0;  // endpoints asked
  std::size_t heard = 0;      // endpoints that answered
  // Endpoints that did not answer, by problem. Those of an earlier attempt of the job are not in
  // `endpoints`.
  std::map<std::string, std::vector<std::string>> unheard;
  std::size_t without_job = 0;       // endpoints that answered, without a process of the job
  std::set<std::string> other_jobs;  // some of the job IDs that the filter left out
  std::shared_ptr<const SnapshotUnion::EndpointOf> endpoint_of;  // indices into the polled ones

  int64_t now_realtime_ns = 0;
  SnapshotSet set;
  DiagnosisResult diagnosis;
  JobVerdict verdict;
  Health health;
  std::size_t went_on = 0;  // communicators that hung in one poll and had progressed at the next
  int looks = 0;            // number of polls
  double seconds = 0;       // duration of all polls

  // The report of NCCL's RAS (ras_report.h), to be shown. Set by commands that ask RAS about ranks
  // that no endpoint reports.
  RasReport ras;
  std::string ras_address;
};

// Facts from earlier polls of the same endpoints.
struct JobLookMemory {
  LastHeard last_heard;
  // The hangs of the last poll, by the id and number of their communicators.
  std::map<std::pair<uint64_t, uint32_t>, std::pair<HangVerdict, std::vector<int32_t>>> hangs;
  int64_t polled_realtime_ns = 0;  // Unix time of the last poll
};

struct JobLookOptions {
  FleetClientOptions client;
  JobFilter filter;
  // None: for each job, the shortest threshold of the endpoints of its own processes.
  std::optional<std::chrono::milliseconds> hang_after;
  std::chrono::milliseconds pause{1000};  // between polls
  int most_looks = 1;  // most polls if none finds a hang; kLooksForStragglers to find stragglers
  uint64_t most_bytes = kMostMemoryBytes;
  std::chrono::milliseconds most_time{10000};
  AskFunction ask = AskAll;
  // Ranks without the plugin (exporter/outside), added to the reported ranks.
  std::vector<ProcessSnapshot> outside;
  JobLookMemory* memory = nullptr;  // facts from earlier calls of LookAtJob; null: none
};

JobLook LookAtJob(const std::vector<Address>& endpoints, const JobLookOptions& options);

// Returns the Unix time at which the first communicator of the job's live processes began, in
// nanoseconds; nothing if a rank is not seen, or if the job's health is kIncomplete.
std::optional<int64_t> CompleteSince(const JobLook& look);

// Splits a poll by job: processes that share communicators. Each part has its own verdict, and
// counts the endpoints that report the job.
std::vector<JobLook> SplitByJob(JobLook look);

}  // namespace nccl_pulse

#endif  // EXPORTER_FLEET_JOB_LOOK_H_
