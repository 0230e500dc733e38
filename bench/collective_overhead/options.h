// The command line.
//
// Thread: plain data and a pure function (it resolves paths against the file system). Errors:
// Parse returns a sentence that names the argument.
#ifndef BENCH_COLLECTIVE_OVERHEAD_OPTIONS_H_
#define BENCH_COLLECTIVE_OVERHEAD_OPTIONS_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "bench/collective_overhead/points.h"

namespace nccl_pulse::overhead {

// Plugin and environment of a set of processes.
struct Configuration {
  std::string name;
  std::string plugin;  // for NCCL_PROFILER_PLUGIN; "none" for none
  std::vector<std::pair<std::string, std::string>> environment;
};
// True for a set without a plugin and with an unchanged environment. The others are compared with
// such sets.
inline bool IsWithoutPlugin(const Configuration& configuration) {
  return configuration.plugin == "none" && configuration.environment.empty();
}

struct Options {
  std::vector<int> devices;  // of rank 0, 1, ...; empty: all devices
  std::vector<Operation> operations = {Operation::kAllReduce};
  std::vector<uint64_t> sizes;
  std::vector<Mode> modes = {Mode::kBackToBack, Mode::kSync, Mode::kGraph};
  std::vector<bool> compute = {false, true};
  std::vector<Launch> launches = {Launch::kProcesses};
  std::vector<Configuration> configurations;  // the first is "none", another one has no plugin

  int pairs = 0;       // per point; 0: as many as fit
  double seconds = 0;  // in total, from the program's start; 0: no limit
  int rounds = 0;      // 0: as many as fit

  double sample_ms = 20;
  double settle_seconds = 0;
  int graph_operations = 10;
  int layers = 64;

  std::string nccl = "libnccl.so.2";
  double hang_seconds = 60;
  std::string samples = "overhead.jsonl";
  bool help = false;
};

extern const char kUsage[];

// Returns the error, or nothing. `arguments`: without the program's name.
std::string ParseOptions(const std::vector<std::string>& arguments, Options* options);

// Returns all requested points in measuring order.
std::vector<Point> Points(const Options& options);

// Returns the number of operations in one step of a timing: one, or all operations of a graph.
int OperationsPerStep(const Options& options, Mode mode);
// True if a point needs the compute kernel.
bool NeedsCompute(const Options& options);

}  // namespace nccl_pulse::overhead

#endif  // BENCH_COLLECTIVE_OVERHEAD_OPTIONS_H_
