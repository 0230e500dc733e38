// Counts right verdicts on simulated jobs, for docs/detection.md.
//
//   ./bazelw run //bench/jobs:verdicts -- --jobs=1000
//   ./bazelw run //bench/jobs:verdicts -- --fault="GPU stuck" --seed=17
#include <array>
#include <cstdint>
#include <cstdio>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "bench/jobs/scenario.h"

ABSL_FLAG(int, jobs, 100, "of each fault");
ABSL_FLAG(std::string, fault, "", "this one alone");
ABSL_FLAG(int, from, 0, "the first of them");
ABSL_FLAG(int, seed, -1, "this job alone, and what is said of it");
ABSL_FLAG(int, show, 3, "of each fault, the jobs on which the verdict is not right");
ABSL_FLAG(int, times_as_long, 1, "how long jobs have run that are slow or healthy, when asked");
ABSL_FLAG(std::string, until, "", "the first fault that is left out, with all behind it");
ABSL_FLAG(bool, labels, false, "count the jobs whose labels differ from look to look, instead");
ABSL_FLAG(bool, by_layout, false, "a row for each layout of the jobs, too");

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

void CountLabels() {
  std::printf("| what is wrong | jobs | with other labels at another look |\n|---|---|---|\n");
  for (const std::string& fault : FaultNames()) {
    if (!absl::GetFlag(FLAGS_fault).empty() && fault != absl::GetFlag(FLAGS_fault)) continue;
    int differ = 0;
    for (int i = 0; i < absl::GetFlag(FLAGS_jobs); ++i) {
      const Scenario scenario =
          MakeScenario(fault, static_cast<uint64_t>(absl::GetFlag(FLAGS_from) + i));
      if (scenario.options.page_every_ns != 0) continue;
      const std::vector<std::string> labels = LabelsOverLooks(scenario);
      const std::set<std::string> different(labels.begin(), labels.end());
      if (different.size() < 2) continue;
      if (++differ > absl::GetFlag(FLAGS_show)) continue;
      for (const std::string& each : labels) {
        std::printf("  seed %d: %s\n", absl::GetFlag(FLAGS_from) + i, each.c_str());
      }
    }
    std::printf("| %s | %d | %d |\n", fault.c_str(), absl::GetFlag(FLAGS_jobs), differ);
    std::fflush(stdout);
  }
}

using Outcomes = std::array<int, kOutcomes>;

void PrintRow(const std::string& name, const Outcomes& outcomes) {
  std::printf("| %s |", name.c_str());
  for (const int count : outcomes) std::printf(" %d |", count);
  std::printf("\n");
}

int Main() {
  if (absl::GetFlag(FLAGS_labels)) {
    CountLabels();
    return 0;
  }
  std::printf("| what is wrong |");
  for (int i = 0; i < kOutcomes; ++i) std::printf(" %s |", OutcomeName(static_cast<Outcome>(i)));
  std::printf("\n|---|---|---|---|---|---|\n");
  const std::string only = absl::GetFlag(FLAGS_fault);
  const int seed = absl::GetFlag(FLAGS_seed);
  for (const std::string& fault : FaultNames()) {
    if (!only.empty() && fault != only) continue;
    if (fault == absl::GetFlag(FLAGS_until)) break;
    Outcomes outcomes{};
    std::map<std::string, Outcomes> of_layout;
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
      ++of_layout[scenario.layout.name][static_cast<int>(judged.outcome)];
      const bool is_shown = judged.outcome != Outcome::kRight && shown < absl::GetFlag(FLAGS_show);
      if (seed >= 0 || is_shown) {
        Show(scenario, judged);
        if (seed >= 0) std::printf("%s", judged.graph.c_str());
        ++shown;
      }
    }
    PrintRow(fault, outcomes);
    if (absl::GetFlag(FLAGS_by_layout)) {
      for (const auto& [name, counts] : of_layout) PrintRow("... " + name, counts);
    }
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
