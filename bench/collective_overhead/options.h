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
// True for a set without a plugin and with an unchanged environment. All other sets are compared
// with these.
inline bool IsWithoutPlugin(const Configuration& configuration) {
  return configuration.plugin == "none" && configuration.environment.empty();
}

struct Options {
  std::vector<int> devices;  // of rank 0, 1, ...; empty: all devices
  std::vector<Operation> operations;
  std::vector<uint64_t> sizes;  // Point::bytes
  std::vector<Mode> modes;
  std::vector<bool> compute;  // without, and with the compute kernel
  std::vector<Launch> launches;
  std::vector<Configuration> configurations;  // the first and at least one more have no plugin

  int pairs = 0;       // blocks (samples.h) per point; 0: as many as fit
  double seconds = 0;  // in total, from the program's start; 0: no limit
  int rounds = 0;      // starts of all processes; 0: as many as fit

  double sample_ms = 20;      // length of a timing
  double settle_seconds = 0;  // after each start, timings in this time do not count
  int graph_operations = 10;  // in the graph of Mode::kGraph
  int layers = 64;            // in the graph of Mode::kGraphDecode

  std::string nccl = "libnccl.so.2";
  double hang_seconds = 60;                // after which a silent set is left out
  std::string samples = "overhead.jsonl";  // path of the results
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
