// The samples, and what is concluded from them.
//
// Sets without a plugin are alike, and there are two or more. A plugin is compared with the mean
// of them; each of them but the first, a "twin", with the mean of the others. Twins say what the
// measurement is worth, so they are looked at first:
//   - A twin that differs beyond its interval makes the point's verdicts suspect.
//   - More of them than chance explains make all verdicts of that launch suspect.
//   - A plugin with which a point is faster beyond the interval makes that verdict suspect: a
//     plugin only adds work, so the sets were not alike.
//   - A slowdown no larger than what a twin shows is not failed but undecided.
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
  double total_us = -1;  // until the compute beside has finished as well
};

// Each configuration once (the mean of its two runs), in the order of Options::configurations.
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

// What a time is the time of. With compute beside, both are told and judged: a plugin can hold up
// the collectives, or the other stream.
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
  std::string reason;  // of a verdict that the figures alone do not explain
  std::string note;    // why it was not measured
};

// Of one point: the twins and then the others, each in the order of the configurations. Judged by
// this point alone.
std::vector<Row> RowsOf(const PointResult& result, const Options& options);
// Of all, as many for each point as there are configurations but the first (twice as many with
// compute), judged with all twins.
std::vector<Row> RowsOf(const std::vector<PointResult>& results, const Options& options);

// What twins showed in one launch.
struct TwinCount {
  int compared = 0;
  int differ = 0;
  int by_chance = 0;  // that many may differ
  bool Suspect() const { return differ > by_chance; }
};
TwinCount CountTwins(const std::vector<Row>& rows, Launch launch, double confidence);

}  // namespace nccl_pulse::overhead

#endif  // BENCH_COLLECTIVE_OVERHEAD_ROWS_H_
