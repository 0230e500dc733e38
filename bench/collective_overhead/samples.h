// Samples of all points, and the file that overhead_report.py reads.
//
// Thread: plain data; WriteSamples: any.
#ifndef BENCH_COLLECTIVE_OVERHEAD_SAMPLES_H_
#define BENCH_COLLECTIVE_OVERHEAD_SAMPLES_H_

#include <string>
#include <vector>

#include "bench/collective_overhead/options.h"
#include "bench/collective_overhead/points.h"

namespace nccl_pulse::overhead {

// One timing of one configuration, in us per operation. Negative: not measured.
struct Sample {
  double operations_us = -1;
  double total_us = -1;  // until the compute kernels have also finished
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
  std::vector<std::string> notes;  // per configuration: why a round left it out
};

struct Machine {
  std::string gpu;
  int nccl_version = 0;    // 22809: 2.28.9
  int driver_version = 0;  // 13000: 13.0
};

// Writes a line of JSON for the run and one for each point. A reader never sees a partial file.
// Returns the error, or nothing.
std::string WriteSamples(const std::string& path, const Options& options, const Machine& machine,
                         const std::vector<PointResult>& results);

}  // namespace nccl_pulse::overhead

#endif  // BENCH_COLLECTIVE_OVERHEAD_SAMPLES_H_
