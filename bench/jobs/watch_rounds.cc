// Measures the processor time of rounds of `pulse watch`, with a poll of each job in each round.
//
//   endpoints --nodes=2000 --targets=/tmp/targets.json
//   watch_rounds --targets=/tmp/targets.json --rounds=6
#include <sys/resource.h>

#include <chrono>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "exporter/cli/flags/flags.h"
#include "exporter/fleet/targets.h"
#include "exporter/watch/watcher.h"

namespace nccl_pulse {
namespace {

using std::chrono::steady_clock;

rusage Used() {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  return used;
}

double Seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
}

int Main(const std::vector<std::string_view>& words) {
  std::string targets = "/tmp/targets.json";
  int rounds = 6;
  std::vector<std::string> rest;
  const std::string problem =
      ReadFlags("watch_rounds", {{"--targets", &targets}, {"--rounds", &rounds}}, words, &rest);
  if (!problem.empty()) {
    std::fprintf(stderr, "%s\n", problem.c_str());
    return 1;
  }
  Watcher::Options options;
  steady_clock::duration ahead{0};
  options.clock = [&ahead] { return steady_clock::now() + ahead; };
  // Under a profiler, everything takes longer.
  options.summary_patience = std::chrono::minutes(10);
  options.find = [&](std::vector<Address>* endpoints, FleetClientOptions* client,
                     std::string* error) {
    client->patience = std::chrono::minutes(10);
    return ReadTargetsFile(targets, /*otherwise_https=*/false, endpoints, error);
  };
  Watcher watcher(options);
  for (int i = 1; i <= rounds; ++i) {
    const rusage before = Used();
    watcher.Round();
    const rusage after = Used();
    const auto state = watcher.state();
    std::printf("round %d: %.2f s user, %.2f s system; %zu answers; %.60s\n", i,
                Seconds(after.ru_utime) - Seconds(before.ru_utime),
                Seconds(after.ru_stime) - Seconds(before.ru_stime), state->answered,
                state->jobs.empty() ? "" : state->jobs.front().findings.sentence.c_str());
    std::fflush(stdout);
    ahead += Watcher::kLookAgainAtMost + std::chrono::seconds(1);
  }
  std::printf("memory, at most: %ld MiB\n", Used().ru_maxrss >> 10);
  return 0;
}

}  // namespace
}  // namespace nccl_pulse

int main(int argc, char** argv) { return nccl_pulse::Main({argv + 1, argv + argc}); }
