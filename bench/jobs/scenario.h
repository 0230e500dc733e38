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
enum class Engine { kVerdicts, kWaits };
// Runs the job, lets each endpoint write what it knows, and diagnoses the union of what was read.
// `engine`: who finds hangs.
Judged Judge(const Scenario& scenario, Engine engine = Engine::kVerdicts);

}  // namespace nccl_pulse

#endif  // BENCH_JOBS_SCENARIO_H_
