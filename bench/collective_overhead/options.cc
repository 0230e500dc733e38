#include "bench/collective_overhead/options.h"

#include <algorithm>
#include <cctype>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "bench/collective_overhead/plan.h"
#include "exporter/cli/flags/flags.h"

namespace nccl_pulse::overhead {

const char kUsage[] =
    R"(What NCCL profiler plugins cost: each collective with and without them, alternately.

  collective_overhead --config=NAME:PLUGIN[,VARIABLE=VALUE...] [--config=...] [OPTION...]

Every run has at least two sets of processes without a plugin, "none" and a "twin". A plugin is
compared with the mean of them; what they differ by is no plugin's. All processes are started
afresh in every round, and the intervals are those over rounds. The method: docs/benchmarks.md

Configurations
  --config=NAME:PLUGIN[,VARIABLE=VALUE...]
                    PLUGIN: the library's path, or none (a further set without a plugin; the
                    first takes the place of "twin"). The variables are set for its processes.
What is measured
  --gpus=N          the first N GPUs (default: all)
  --devices=0,1     or these; one that is named twice gets several ranks, which only serves to try
                    the program out (set NCCL_IB_DISABLE=1 NCCL_SOCKET_IFNAME=lo)
  --ops=LIST        all_reduce, all_gather, reduce_scatter, broadcast, all_to_all, send_recv, or
                    all (default all_reduce)
  --sizes=LIST      64,4K,1M or FIRST:LAST:FACTOR (default 64:256M:8); bytes of the count that NCCL
                    is called with; float32, so multiples of 4 from 8 to 1G
  --modes=LIST      back-to-back, sync, graph (default: these three), graph-decode (a graph of
                    layers, each a kernel of 64 blocks and the operation; times are of a layer)
  --compute=LIST    without, with a compute kernel on another stream (default: both)
  --launch=LIST     processes (one per GPU), threads (of one process) (default processes)
How long
  --seconds=S       in all, start-up included (default 300, none if --pairs is given)
  --pairs=N         pairs per point
  --rounds=R        starts all processes afresh R times and divides time and pairs among them.
                    Default: from --seconds, as many as fit with three blocks for each point in a
                    round and a third of the time at most for starting, from 5 (fewer where time
                    does not suffice for starting) to 30; with --pairs alone 5, or as many as
                    pairs. What is planned is printed before the first start and after it
  --sample-ms=T     length of one timing (default 20)
  --settle-seconds=S  of each round, after the start: what a plugin does in the first seconds of a
                    process (NCCL Pulse proves NCCL's counter) is run and not measured (default 0)
Output: progress on stderr, and samples, written anew after every round. overhead_report.py prints
the tables and verdicts
  --samples=FILE    (default overhead.jsonl)
Rarely needed
  --nccl=FILE       libnccl.so.2 to use (default: as the dynamic linker finds it)
  --graph-ops=N     operations per captured graph (default 10)
  --layers=N        of graph-decode's graph (default 64)
  --hang-seconds=S  after which a silent configuration is given up (default 60)
)";

namespace {

using Error = std::string;

constexpr uint64_t kSmallestBytes = 8;
constexpr uint64_t kLargestBytes = uint64_t{1} << 30;

template <typename T, typename Parse>
Error ParseList(const std::string& text, Parse parse, std::vector<T>* list) {
  list->clear();
  for (const std::string& part : std::vector<std::string>(absl::StrSplit(text, ','))) {
    const auto value = parse(part);
    if (!value) return absl::StrCat("'", part, "' is unknown");
    list->push_back(*value);
  }
  return {};
}

Error ParseNumber(const std::string& text, double smallest, double largest, double* number) {
  double value = 0;
  if (!absl::SimpleAtod(text, &value) || !(value >= smallest && value <= largest)) {
    return absl::StrCat("'", text, "' is not a number from ", smallest, " to ", largest);
  }
  *number = value;
  return {};
}

std::optional<int> ParseDevice(const std::string& text) {
  int device = 0;
  return absl::SimpleAtoi(text, &device) && device >= 0 ? std::optional(device) : std::nullopt;
}

std::optional<bool> ParseCompute(const std::string& text) {
  return text == "with" || text == "without" ? std::optional(text == "with") : std::nullopt;
}

Error ParseConfiguration(const std::string& text, std::vector<Configuration>* configurations) {
  const std::pair<std::string, std::string> named = absl::StrSplit(text, absl::MaxSplits(':', 1));
  Configuration configuration;
  configuration.name = named.first;
  if (configuration.name.empty() || named.second.empty()) return "NAME:PLUGIN is needed";
  for (const char c : configuration.name) {
    // The name becomes a column of tables.
    if (isalnum(static_cast<unsigned char>(c)) == 0 && strchr("_+-.", c) == nullptr) {
      return absl::StrCat("the name '", configuration.name,
                          "' has other characters than letters, digits and _+-.");
    }
  }
  for (const Configuration& other : *configurations) {
    if (other.name == configuration.name) {
      return absl::StrCat("the name '", other.name, "' is there already");
    }
  }
  const std::vector<std::string> parts = absl::StrSplit(named.second, ',');
  configuration.plugin = parts[0];
  if (configuration.plugin != "none") {
    // Without its plugin NCCL continues, and the measurement would always pass.
    char resolved[PATH_MAX];
    if (realpath(parts[0].c_str(), resolved) == nullptr) {
      return absl::StrCat("there is no file '", parts[0], "'");
    }
    configuration.plugin = resolved;
  }
  for (std::size_t i = 1; i < parts.size(); ++i) {
    const std::pair<std::string, std::string> variable =
        absl::StrSplit(parts[i], absl::MaxSplits('=', 1));
    if (variable.first.empty() || parts[i].find('=') == std::string::npos) {
      return absl::StrCat("'", parts[i], "' is not VARIABLE=VALUE");
    }
    configuration.environment.push_back(variable);
  }
  configurations->push_back(configuration);
  return {};
}

Error ParseSizeList(const std::string& text, std::vector<uint64_t>* sizes) {
  const auto parsed = ParseSizes(text);
  if (!parsed) return absl::StrCat("'", text, "' is neither a list nor FIRST:LAST:FACTOR");
  for (const uint64_t size : *parsed) {
    if (size < kSmallestBytes || size > kLargestBytes || size % 4 != 0) {
      return absl::StrCat(size, " is not a multiple of 4 from 8 to 1G");
    }
  }
  *sizes = *parsed;
  return {};
}

Error AddTwin(std::vector<Configuration>* configurations) {
  if (std::count_if(configurations->begin(), configurations->end(), IsWithoutPlugin) > 1) return {};
  for (const Configuration& other : *configurations) {
    if (other.name == "twin") return "--config: 'twin' is the name of a set without a plugin";
  }
  configurations->insert(configurations->begin() + 1, {"twin", "none", {}});
  return {};
}

}  // namespace

std::string ParseOptions(const std::vector<std::string>& arguments, Options* options) {
  std::vector<std::string> configurations, others;
  std::string devices, operations = "all_reduce", sizes = "64:256M:8";
  std::string modes = "back-to-back,sync,graph", compute = "without,with", launches = "processes";
  std::string seconds, sample_ms = "20", settle_seconds = "0", hang_seconds = "60";
  int gpus = 0;
  const Error wrong = ReadFlags("collective_overhead",
                                {{"--help", &options->help},
                                 {"--config", &configurations},
                                 {"--gpus", &gpus, "N", "", "1 to 1024"},
                                 {"--devices", &devices},
                                 {"--ops", &operations},
                                 {"--sizes", &sizes},
                                 {"--modes", &modes},
                                 {"--compute", &compute},
                                 {"--launch", &launches},
                                 {"--seconds", &seconds},
                                 {"--pairs", &options->pairs, "N", "", "1 to 1000000"},
                                 {"--rounds", &options->rounds, "R", "", "1 to 1000000"},
                                 {"--settle-seconds", &settle_seconds},
                                 {"--sample-ms", &sample_ms},
                                 {"--graph-ops", &options->graph_operations, "N", "", "1 to 10000"},
                                 {"--layers", &options->layers, "N", "", "1 to 10000"},
                                 {"--nccl", &options->nccl},
                                 {"--hang-seconds", &hang_seconds},
                                 {"--samples", &options->samples}},
                                {arguments.begin(), arguments.end()}, &others);
  if (!wrong.empty() || options->help) return wrong;
  if (!others.empty()) return absl::StrCat("'", others.front(), "' is not an option");
  if (operations == "all") {
    operations = absl::StrJoin(kOperations, ",", [](std::string* list, Operation operation) {
      absl::StrAppend(list, Name(operation));
    });
  }
  options->configurations = {{"none", "none", {}}};
  std::vector<std::pair<const char*, Error>> parsed = {
      {"ops", ParseList(operations, ParseOperation, &options->operations)},
      {"sizes", ParseSizeList(sizes, &options->sizes)},
      {"modes", ParseList(modes, ParseMode, &options->modes)},
      {"compute", ParseList(compute, ParseCompute, &options->compute)},
      {"launch", ParseList(launches, ParseLaunch, &options->launches)},
      {"settle-seconds", ParseNumber(settle_seconds, 0, 1e4, &options->settle_seconds)},
      {"sample-ms", ParseNumber(sample_ms, 0.1, 1e4, &options->sample_ms)},
      {"hang-seconds", ParseNumber(hang_seconds, 0.1, 1e5, &options->hang_seconds)}};
  for (const std::string& each : configurations) {
    parsed.emplace_back("config", ParseConfiguration(each, &options->configurations));
  }
  if (!devices.empty()) {
    parsed.emplace_back("devices", ParseList(devices, ParseDevice, &options->devices));
  }
  if (!seconds.empty()) {
    parsed.emplace_back("seconds", ParseNumber(seconds, 1, 1e6, &options->seconds));
  }
  for (const auto& [name, error] : parsed) {
    if (!error.empty()) return absl::StrCat("--", name, ": ", error);
  }

  if (gpus > 0) {
    if (!options->devices.empty()) return "--gpus and --devices exclude each other";
    for (int device = 0; device < gpus; ++device) options->devices.push_back(device);
  }
  const std::set<int> distinct(options->devices.begin(), options->devices.end());
  if (distinct.size() < options->devices.size()) {
    for (const Launch launch : options->launches) {
      // NCCL refuses two ranks on one GPU unless they seem to be on different hosts, which is a
      // setting per process.
      if (launch == Launch::kThreads) return "--devices: threads need a GPU each";
    }
  }
  if (options->configurations.size() < 2) return "--config is needed at least once";
  Error error = AddTwin(&options->configurations);
  if (!error.empty()) return error;
  if (options->pairs > 0 && options->pairs < options->rounds) {
    return "--rounds: there are not so many pairs";
  }
  if (options->pairs > 0 && options->seconds == 0 && options->rounds == 0) {
    options->rounds = std::min(options->pairs, kFewestRounds);
  }
  if (options->pairs == 0 && options->seconds == 0) options->seconds = 300;
  return {};
}

std::vector<Point> Points(const Options& options) {
  std::vector<Point> points;
  for (const Operation operation : options.operations) {
    for (const bool compute : options.compute) {
      for (const Mode mode : options.modes) {
        for (const uint64_t bytes : options.sizes) {
          points.push_back({operation, mode, compute, bytes});
        }
      }
    }
  }
  return points;
}

int OperationsPerStep(const Options& options, Mode mode) {
  if (mode == Mode::kGraph) return options.graph_operations;
  return mode == Mode::kGraphDecode ? options.layers : 1;
}

bool NeedsCompute(const Options& options) {
  return std::find(options.compute.begin(), options.compute.end(), true) != options.compute.end() ||
         std::find(options.modes.begin(), options.modes.end(), Mode::kGraphDecode) !=
             options.modes.end();
}

}  // namespace nccl_pulse::overhead
