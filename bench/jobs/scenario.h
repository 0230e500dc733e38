// Scenario is a simulated job with or without a fault. Judge compares the engine's verdict with the
// expected one, for the test and for the table in docs/detection.md.
//
// Thread: any; a seed always gives the same job.
#ifndef BENCH_JOBS_SCENARIO_H_
#define BENCH_JOBS_SCENARIO_H_

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "bench/jobs/job_layout.h"
#include "bench/jobs/job_run.h"
#include "exporter/diagnosis/facts/snapshot_set.h"
#include "exporter/diagnosis/job_verdict.h"

namespace nccl_pulse {

// An endpoint's answer to a poll: current, none, or too old to be used.
enum class Answer { kNow, kNone, kStale };

// The verdict that a simulated job must get.
enum class Truth : uint8_t {
  kByFault,   // follows from the Fault
  kCulprits,  // the culprits are named, and no others
  kSides,     // as kCulprits, or no rank is named and calls are reported to differ
  kNobody,    // no rank is named, and no hang is reported
  kOk,        // as kNobody, and the job's health is OK or idle
  kNotOk,     // no rank but culprits is named, and the job's health is not OK
  // The culprits are named. Or no rank is, and the report says that ranks are not compared, or that
  // they wait for each other.
  kSlowOrNotCompared,
};

struct Scenario {
  uint64_t seed = 0;
  JobLayout layout;
  std::vector<JobGroup> groups;
  JobRunOptions options;
  std::string fault;            // name of the fault or family
  std::vector<Answer> answers;  // by node
  std::set<int> culprits;       // global ranks that the verdict should name, and no others
  // Another job at the same endpoints. Its ranks start at kOtherJob in `culprits`.
  std::shared_ptr<const Scenario> other;
  Truth truth = Truth::kByFault;
  std::vector<int64_t> hang_after_ns;  // of each node's endpoint; empty: the default
  std::string asked_job_id;            // a filter; "": all jobs
  // Answers from poll `later_from` on; empty: `answers`.
  std::vector<Answer> answers_later;
  int later_from = 0;
  // The job before this attempt, or before it lost ranks. A process with the pid of one of this
  // job's processes is the same process, and keeps its earlier communicators.
  std::shared_ptr<const Scenario> before;
  bool is_on_its_node = false;  // only the endpoint of the culprit's node is watched
};

inline constexpr int kOtherJob = 1000000;

enum class Outcome {
  kRight,    // culprits are named, and no others; for a healthy job: no rank is named
  kPlace,    // no rank is named, but a hang is reported
  kNothing,  // no finding
  kAlso,     // all culprits are named, and others
  kWrong,    // others are named, and not all culprits
};
inline constexpr int kOutcomes = 5;
const char* OutcomeName(Outcome outcome);

// Returns the names of all faults and families.
const std::vector<std::string>& FaultNames();

// Aborts if no fault or family has this name.
Scenario MakeScenario(const std::string& fault, uint64_t seed);

// Polls a scenario's endpoints as a watcher does, a second apart.
class Polls {
 public:
  struct Poll {
    SnapshotSet set;  // of all endpoints that answer
    int64_t realtime_ns = 0;
    int64_t hang_after_ns = 0;    // the shortest threshold of an endpoint
    std::set<std::string> heard;  // names of the nodes that answered
    std::string error;            // set if an answer cannot be read
    bool is_last = false;
  };

  explicit Polls(const Scenario& scenario);
  Poll Next();

 private:
  const Scenario& scenario_;
  JobRunOptions options_;
  int number_ = 0;
};

// Returns a description of the expected verdict, for the corpus (corpus.cc).
const char* ExpectedName(const Scenario& scenario);

struct Judged {
  Outcome outcome{};
  std::string said;   // the verdict in words
  int looks = 1;      // number of polls made
  std::string graph;  // the graph of waits as text
};
// Runs the job, makes each endpoint write its snapshots, and diagnoses their union.
Judged Judge(const Scenario& scenario);

// Returns, for each of several newly started watchers, the labels of the blocking ranks as `pulse
// watch` exports them. The watchers poll up to 10 s apart.
std::vector<std::string> LabelsOverLooks(const Scenario& scenario);

}  // namespace nccl_pulse

#endif  // BENCH_JOBS_SCENARIO_H_
