// The samples, and what is written about them.
//
// Thread: plain data and pure functions, WriteFile apart.
#ifndef BENCH_COLLECTIVE_OVERHEAD_REPORT_H_
#define BENCH_COLLECTIVE_OVERHEAD_REPORT_H_

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

struct Row {
  Launch launch;
  Point point;
  Measured measured;
  std::string configuration;
  Comparison comparison;  // pairs = 0: nothing to compare
  std::string note;
};

struct Machine {
  std::string gpu;
  int nccl_version = 0;
  int driver_version = 0;
  // Per configuration: share of a processor that a process took while others were measured.
  std::vector<double> idle_cpu;
};

std::vector<Row> RowsOf(const PointResult& result, const Options& options);
std::vector<Row> RowsOf(const std::vector<PointResult>& results, const Options& options);

// "+0.31 % [-0.10, +0.62]"
std::string RatioText(const Comparison& comparison);

std::string Table(const std::vector<Row>& rows);
// Counts per configuration; failed, undecided and unmeasured points by name.
std::string Summary(const std::vector<Row>& rows, const Options& options, const Machine& machine);
std::string Csv(const std::vector<Row>& rows);
std::string Json(const std::vector<PointResult>& results, const Options& options,
                 const Machine& machine);
// One line per point, one column per configuration.
std::string Markdown(const std::vector<Row>& rows, const Options& options);

// In one step, so that whoever looks meanwhile sees a whole file. The error, or nothing.
std::string WriteFile(const std::string& path, const std::string& text);

}  // namespace nccl_pulse::overhead

#endif  // BENCH_COLLECTIVE_OVERHEAD_REPORT_H_
