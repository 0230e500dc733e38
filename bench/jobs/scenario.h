// A made-up job with something wrong, or nothing, and whether the verdict on it is right: for the
// test and for the table in docs/detection.md.
//
// Thread: any; the same number gives the same job.
#ifndef BENCH_JOBS_SCENARIO_H_
#define BENCH_JOBS_SCENARIO_H_

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "bench/jobs/job_layout.h"
#include "bench/jobs/job_run.h"
#include "exporter/diagnosis/job_verdict.h"

namespace nccl_pulse {

// What an endpoint does when it is asked.
enum class Answer { kNow, kNone, kStale };

// The verdict that a made-up job must get.
enum class Truth : uint8_t {
  kByFault,            // depends on Fault
  kCulprits,           // the culprits are named, and no other rank
  kSides,              // likewise, or no rank is named and calls are said to differ
  kNobody,             // no rank is named, and no hang is reported
  kOk,                 // likewise, and the job's health is OK
  kNotOk,              // all culprits are named or no rank, and the job's health is not OK
  kSlowOrNotCompared,  // the culprits are named, or no rank and "not compared" is said
};

struct Scenario {
  uint64_t seed = 0;
  JobLayout layout;
  std::vector<JobGroup> groups;
  JobRunOptions options;
  std::string fault;            // its name
  std::vector<Answer> answers;  // of each node
  std::set<int> culprits;       // global ranks that are to be named, and nobody else
  // Another job at the same endpoints. Its ranks are numbered from kOtherJob on in `culprits`.
  std::shared_ptr<const Scenario> other;
  Truth truth = Truth::kByFault;
  std::vector<int64_t> hang_after_ns;  // of each node's endpoint; empty: the default
  std::string asked_job_id;            // a filter; "": all jobs
  // The answers from look number `later_from` on; empty: `answers`.
  std::vector<Answer> answers_later;
  int later_from = 0;
  // The job before this attempt, or before it lost ranks. A process with the pid of one of this job's
  // processes is the same process, and keeps the communicators of before.
  std::shared_ptr<const Scenario> before;
  bool is_on_its_node = false;  // the endpoint of the culprit's node is watched, alone
};

inline constexpr int kOtherJob = 1000000;

enum class Outcome {
  kRight,    // the culprits are named, and nobody else; of a healthy job: nobody
  kPlace,    // nobody is named; the communicator, or the host, is the right one
  kNothing,  // nothing is said
  kAlso,     // somebody else is named beside the culprits
  kWrong,    // somebody else is named
};
inline constexpr int kOutcomes = 5;
const char* OutcomeName(Outcome outcome);

// The names of all faults, those of healthy jobs last.
const std::vector<std::string>& FaultNames();

Scenario MakeScenario(const std::string& fault, uint64_t seed);

struct Judged {
  Outcome outcome{};
  std::string said;  // for a person
  int looks = 1;
  std::string graph;  // of waits
};
// Runs the job, lets each endpoint write what it knows, and diagnoses the union of what was read.
Judged Judge(const Scenario& scenario);

// Returns the roots' labels as `pulse watch` has them, in the words of watchers that have just started and
// ask somewhat later than each other, or whose endpoints answer in another order.
std::vector<std::string> LabelsOverLooks(const Scenario& scenario);

}  // namespace nccl_pulse

#endif  // BENCH_JOBS_SCENARIO_H_
