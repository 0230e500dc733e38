// RowsOf draws conclusions from the samples.
//
// There are two or more sets without a plugin. A plugin is compared with their mean. Each of them
// but the first, a "twin", is compared with the mean of the others. Twins show how good the
// measurement is:
//   - A twin that differs beyond its interval makes the point's verdicts suspect.
//   - More of them than chance explains make all verdicts of that launch suspect.
//   - A plugin that makes a point faster beyond the interval makes that verdict suspect: a plugin
//     only adds work, so the sets were not alike.
//   - A slowdown no larger than a twin's is undecided, not failed.
//
// Thread: plain data and pure functions.
#ifndef BENCH_COLLECTIVE_OVERHEAD_ROWS_H_
#define BENCH_COLLECTIVE_OVERHEAD_ROWS_H_

#include <string>
#include <vector>

#include "bench/collective_overhead/options.h"
#include "bench/collective_overhead/points.h"
#include "bench/collective_overhead/statistics.h"

namespace nccl_pulse::overhead {

// One timing of one configuration, in us per operation. Negative: not measured.
struct Sample {
  double operations_us = -1;
  double total_us = -1;  // until the compute beside has finished too
};

// Each configuration's mean of two runs, in the order of Options::configurations.
struct Block {
  int round = 0;
  std::vector<Sample> samples;
};

struct PointResult {
  Launch launch;
  Point point;
  std::vector<Block> blocks;
  std::vector<std::string> notes;  // per configuration: why it was not measured
};

// The measured time. With compute beside, both are reported and judged: a plugin can delay the
// collectives, or the other stream.
enum class Measured { kOperations, kTotal };
const char* Name(Measured measured);
double ValueOf(const Sample& sample, Measured measured);

struct Row {
  Launch launch;
  Point point;
  Measured measured;
  std::string configuration;
  bool twin;
  Comparison comparison;
  Verdict verdict;
  std::string reason;  // of a verdict not explained by the figures alone
  std::string note;    // why it was not measured
};

// Returns the rows of one point: twins first, then the others, in the order of the configurations.
// Judged by this point alone.
std::vector<Row> RowsOf(const PointResult& result, const Options& options);
// Returns the rows of all points, judged with all twins. Each point has one row per configuration
// but the first, two with compute.
std::vector<Row> RowsOf(const std::vector<PointResult>& results, const Options& options);

// How many twins of one launch differ.
struct TwinCount {
  int compared = 0;
  int differ = 0;
  int by_chance = 0;  // limit that chance explains
  bool Suspect() const { return differ > by_chance; }
};
TwinCount CountTwins(const std::vector<Row>& rows, Launch launch, double confidence);

}  // namespace nccl_pulse::overhead

#endif  // BENCH_COLLECTIVE_OVERHEAD_ROWS_H_
