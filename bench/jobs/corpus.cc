// Writes simulated jobs and the truth about each as JSON, to test other rules on them.
// docs/benchmarks.md has the format.
//
//   ./bazelw run //bench/jobs:corpus -- --folder=/tmp/corpus
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "bench/jobs/scenario.h"
#include "exporter/cli/flags/flags.h"
#include "exporter/exposition/json/communicators_json.h"
#include "nlohmann/json.hpp"

namespace nccl_pulse {
namespace {

using Json = nlohmann::ordered_json;

// Returns the poll's facts as JSON, without the exporter's conclusions.
Json FactsOf(const Polls::Poll& poll) {
  Json facts = Json::parse(CommunicatorsJson(poll.set, poll.realtime_ns));
  facts.erase("health");
  for (Json& communicator : facts["communicators"]) {
    for (const char* conclusion : {"hang", "queued", "note", "straggler", "operations"}) {
      communicator.erase(conclusion);
    }
    for (Json& rank : communicator["ranks"]) {
      for (const char* conclusion : {"straggler_seconds", "state_word", "unknown_because"}) {
        rank.erase(conclusion);
      }
    }
  }
  return facts;
}

// Returns the culprits; empty for a healthy job.
Json CulpritsOf(const Scenario& scenario) {
  const std::string expected = ExpectedName(scenario);
  if (expected == "no rank" || expected == "healthy") return Json::array();
  return scenario.culprits;
}

Json JobOf(const Scenario& scenario) {
  Json polls = Json::array();
  Polls all(scenario);
  for (bool is_last = false; !is_last;) {
    const Polls::Poll poll = all.Next();
    polls.push_back(FactsOf(poll));
    is_last = poll.is_last;
  }
  return {{"fault", scenario.fault},          {"seed", scenario.seed},
          {"hang_after_seconds", 10},         {"expected", ExpectedName(scenario)},
          {"culprits", CulpritsOf(scenario)}, {"polls", std::move(polls)}};
}

bool Write(const std::filesystem::path& path, const std::string& text) {
  std::ofstream file(path);
  file << text << "\n";
  file.close();
  if (file.fail()) std::fprintf(stderr, "cannot write %s\n", path.c_str());
  return !file.fail();
}

int Main(const std::vector<std::string_view>& words) {
  std::string folder_name = "corpus";  // created
  int jobs_of_each = 2;                // of each fault
  int first_seed = 20'000'000;
  int most_ranks = 8;  // larger jobs are left out
  std::vector<std::string> rest;
  const std::string problem = ReadFlags("corpus",
                                        {{"--folder", &folder_name},
                                         {"--jobs", &jobs_of_each},
                                         {"--from", &first_seed},
                                         {"--most-ranks", &most_ranks}},
                                        words, &rest);
  if (!problem.empty()) {
    std::fprintf(stderr, "%s\n", problem.c_str());
    return 1;
  }
  const std::filesystem::path folder = folder_name;
  std::error_code ignored;  // creating the first file reports it
  std::filesystem::create_directories(folder, ignored);
  int files = 0;
  for (const std::string& fault : FaultNames()) {
    // Some faults need many ranks.
    constexpr uint64_t kTries = 200;
    auto seed = static_cast<uint64_t>(first_seed);
    const uint64_t end = seed + kTries;
    for (int jobs = 0; jobs < jobs_of_each && seed < end; ++seed) {
      const Scenario scenario = MakeScenario(fault, seed);
      if (scenario.layout.ranks() > most_ranks) continue;
      const std::string name = absl::StrReplaceAll(absl::StrCat(fault, "-", seed, ".json"),
                                                   {{" ", "_"}, {"/", "_"}, {",", ""}, {":", ""}});
      if (!Write(folder / name, JobOf(scenario).dump())) return 1;
      ++jobs;
      ++files;
    }
  }
  std::printf("%d jobs in %s\n", files, folder.c_str());
  return 0;
}

}  // namespace
}  // namespace nccl_pulse

int main(int argc, char** argv) { return nccl_pulse::Main({argv + 1, argv + argc}); }
