// Writes what the endpoints of a made-up job answer: snapshot_page FOLDER FAULT SEED [LATER].
// One file "node-N" for each, LATER seconds after the first look at the job, up to those that
// `pulse diagnose` goes on looking; standard output has the culprits' global ranks.
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>

#include "bench/jobs/scenario.h"
#include "exporter/exposition/snapshot_message.h"

int main(int argc, char** argv) {
  using namespace nccl_pulse;  // NOLINT(google-build-using-namespace)
  if (argc != 4 && argc != 5) return 1;
  Scenario scenario = MakeScenario(argv[2], std::strtoull(argv[3], nullptr, 10));
  if (argc == 5) scenario.options.look_again_ns = std::atoi(argv[4]) * int64_t{1000000000};
  const auto nodes = RunJob(scenario.layout, scenario.groups, scenario.options);
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    std::ofstream(std::string(argv[1]) + "/node-" + std::to_string(i), std::ios::binary)
        << WriteSnapshots(nodes[i].set, nodes[i].asked_realtime_ns, 10000000000);
  }
  for (const int rank : scenario.culprits) std::printf("%d\n", rank);
  return 0;
}
