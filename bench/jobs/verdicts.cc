// Counts right verdicts on simulated jobs, for docs/detection.md.
//
//   ./bazelw run //bench/jobs:verdicts -- --jobs=1000
//   ./bazelw run //bench/jobs:verdicts -- --fault="GPU stuck" --seed=17
#include <array>
#include <cstdint>
#include <cstdio>
#include <string>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "bench/jobs/scenario.h"

ABSL_FLAG(int, jobs, 100, "of each fault");
ABSL_FLAG(std::string, fault, "", "this one alone");
ABSL_FLAG(int, from, 0, "the first of them");
ABSL_FLAG(int, seed, -1, "this job alone, and what is said of it");
ABSL_FLAG(int, show, 3, "of each fault, the jobs on which the verdict is not right");
ABSL_FLAG(int, times_as_long, 1, "how long jobs have run that are slow or healthy, when asked");

namespace nccl_pulse {
namespace {

void Show(const Scenario& scenario, const Judged& judged) {
  std::printf(
      "  seed %d, %s, %d ranks on %d nodes, culprit %d on node %d, %s%s: %s after %d looks\n    "
      "%s\n",
      static_cast<int>(scenario.seed), scenario.layout.name.c_str(), scenario.layout.ranks(),
      scenario.layout.nodes(), scenario.options.rank, scenario.layout.NodeOf(scenario.options.rank),
      scenario.options.is_blocking ? "blocking, " : "",
      scenario.layout.has_world ? "world" : "no world", OutcomeName(judged.outcome), judged.looks,
      judged.said.c_str());
}

int Main() {
  std::printf("| what is wrong |");
  for (int i = 0; i < kOutcomes; ++i) std::printf(" %s |", OutcomeName(static_cast<Outcome>(i)));
  std::printf("\n|---|---|---|---|---|---|\n");
  const std::string only = absl::GetFlag(FLAGS_fault);
  const int seed = absl::GetFlag(FLAGS_seed);
  for (const std::string& fault : FaultNames()) {
    if (!only.empty() && fault != only) continue;
    std::array<int, kOutcomes> outcomes{};
    int shown = 0;
    const int first = seed < 0 ? absl::GetFlag(FLAGS_from) : seed;
    const int end = seed < 0 ? first + absl::GetFlag(FLAGS_jobs) : seed + 1;
    for (int i = first; i < end; ++i) {
      Scenario scenario = MakeScenario(fault, static_cast<uint64_t>(i));
      JobRunOptions& options = scenario.options;
      const bool is_slow_at_once = options.fault_ns == 0 && options.pause_ns == 0;
      if (is_slow_at_once) options.asked_ns *= absl::GetFlag(FLAGS_times_as_long);
      const Judged judged = Judge(scenario);
      ++outcomes[static_cast<int>(judged.outcome)];
      const bool is_shown = judged.outcome != Outcome::kRight && shown < absl::GetFlag(FLAGS_show);
      if (seed >= 0 || is_shown) {
        Show(scenario, judged);
        if (seed >= 0) std::printf("%s", judged.graph.c_str());
        ++shown;
      }
    }
    std::printf("| %s |", fault.c_str());
    for (const int count : outcomes) std::printf(" %d |", count);
    std::printf("\n");
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace
}  // namespace nccl_pulse

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  return nccl_pulse::Main();
}
