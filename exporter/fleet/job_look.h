// Asks the endpoints of a job what they know, and diagnoses the union: the work of `pulse
// diagnose`.
//
// Two looks, the second only where the first found a hang, seldom three: endpoints answer at
// different moments, and what goes on in between could be taken for one rank behind another. A hang
// counts if its communicator hangs in two looks that follow each other.
//
// More looks, too, where somebody comes late and one look knows too few common calls to say who: an
// endpoint keeps the last 32 of each communicator. Not where looks take longer than the pauses
// between them.
//
// Thread: the caller's; blocks. Memory: `most_bytes` of snapshots and half of that for answers being
// received, whatever endpoints answer. Processor time: `most_time` to unpack and read all answers,
// and WorkBudget::kLeastShare for each. An endpoint that exceeds its part has not answered, as far
// as the verdict goes; kReservedBytes are kept for each of the others.
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

// Memory for the snapshots of all endpoints, of one, and of one that the others cannot take away: 8
// ranks with 3 communicators each take 112 KiB.
inline constexpr uint64_t kMostMemoryBytes = uint64_t{384} << 20;
inline constexpr uint64_t kMostEndpointBytes = uint64_t{48} << 20;
inline constexpr uint64_t kReservedBytes = uint64_t{128} << 10;
// An answer that an endpoint made longer ago (header Age) is not used: what its ranks have called
// since then would be held against them.
inline constexpr std::chrono::seconds kMostAge{3};

struct JobLook {
  bool is_of_dumps = false;  // of PyTorch's Flight Recorder (dump_look.h): not endpoints, but files
  // Of a job that is diagnosed from outside (exporter/outside): a sentence, where its facts come
  // from. "": of endpoints or dumps.
  std::string outside;
  std::size_t endpoints = 0;  // that were asked
  std::size_t heard = 0;      // of them ...
  // ... and of the others, by what was wrong, who.
  std::map<std::string, std::vector<std::string>> unheard;
  std::size_t without_job = 0;       // heard, and they know of nothing of interest
  std::set<std::string> other_jobs;  // ids that the filter left out, some of them
  // It has, for each process by host and pid, the endpoint that spoke of it, by its place among those
  // asked.
  using EndpointOf = std::map<std::pair<std::string, int32_t>, std::size_t>;
  std::shared_ptr<const EndpointOf> endpoint_of;

  int64_t now_realtime_ns = 0;
  SnapshotSet set;
  DiagnosisResult diagnosis;
  JobVerdict verdict;
  Health health;
  std::size_t went_on = 0;  // communicators that hung at the first look, and no more
  int looks = 0;            // how often the endpoints were asked
  double seconds = 0;       // that all this took

  RasReport ras;            // where ranks are known to no endpoint, if somebody listens there
  std::string ras_address;  // as people know it; "": nobody was asked
};

struct JobLookOptions {
  FleetClientOptions client;
  JobFilter filter;
  // None: for each job the shortest that an endpoint of its own processes goes by. What endpoints of
  // other jobs go by does not matter.
  std::optional<std::chrono::milliseconds> hang_after;
  std::chrono::milliseconds pause{1000};  // before another look
  int most_looks = 1;                     // where nothing hangs, or kLooksForStragglers
  uint64_t most_bytes = kMostMemoryBytes;
  std::chrono::milliseconds most_time{10000};
  std::optional<Address> ras;  // NCCL's, asked once for ranks that no endpoint knows
  AskFunction ask = AskAll;
  // Ranks without the plugin (exporter/outside), beside those that endpoints report.
  std::vector<ProcessSnapshot> outside;
  LastHeard* last_heard = nullptr;  // of earlier looks at the same endpoints; null: there were none
};

JobLook LookAtJob(const std::vector<Address>& endpoints, const JobLookOptions& options);

// Endpoints may know of several jobs: a job is what shares communicators. A look at each, with its
// own verdict, and as heard those endpoints that speak of it.
std::vector<JobLook> SplitByJob(JobLook look);

}  // namespace nccl_pulse

#endif  // EXPORTER_FLEET_JOB_LOOK_H_
