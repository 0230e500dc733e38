// Counts right verdicts on simulated jobs, for docs/detection.md.
//
//   ./bazelw run //bench/jobs:verdicts -- --jobs=1000
//   ./bazelw run //bench/jobs:verdicts -- --fault="GPU stuck" --seed=17
#include <array>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "bench/jobs/scenario.h"
#include "exporter/cli/flags/flags.h"

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

int Main(const std::vector<std::string_view>& words) {
  int jobs = 100;         // of each fault
  std::string only;       // only this fault
  int from = 0;           // the first seed
  int seed = -1;          // only this job, with its verdict printed
  int most_shown = 3;     // jobs of each fault on which the verdict is not right
  int times_as_long = 1;  // how long slow and healthy jobs have run when asked
  std::vector<std::string> rest;
  const std::string problem = ReadFlags("verdicts",
                                        {{"--jobs", &jobs},
                                         {"--fault", &only},
                                         {"--from", &from},
                                         {"--seed", &seed},
                                         {"--show", &most_shown},
                                         {"--times-as-long", &times_as_long}},
                                        words, &rest);
  if (!problem.empty()) {
    std::fprintf(stderr, "%s\n", problem.c_str());
    return 1;
  }
  std::printf("| what is wrong |");
  for (int i = 0; i < kOutcomes; ++i) std::printf(" %s |", OutcomeName(static_cast<Outcome>(i)));
  std::printf("\n|---|---|---|---|---|---|\n");
  for (const std::string& fault : FaultNames()) {
    if (!only.empty() && fault != only) continue;
    std::array<int, kOutcomes> outcomes{};
    int shown = 0;
    const int first = seed < 0 ? from : seed;
    const int end = seed < 0 ? first + jobs : seed + 1;
    for (int i = first; i < end; ++i) {
      Scenario scenario = MakeScenario(fault, static_cast<uint64_t>(i));
      JobRunOptions& options = scenario.options;
      const bool is_slow_at_once = options.fault_ns == 0 && options.pause_ns == 0;
      if (is_slow_at_once) options.asked_ns *= times_as_long;
      const Judged judged = Judge(scenario);
      ++outcomes[static_cast<int>(judged.outcome)];
      const bool is_shown = judged.outcome != Outcome::kRight && shown < most_shown;
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

int main(int argc, char** argv) { return nccl_pulse::Main({argv + 1, argv + argc}); }
