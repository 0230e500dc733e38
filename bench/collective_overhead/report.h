// Writes the samples and their results as tables and files.
//
// Thread: plain data and pure functions, except WriteFile.
#ifndef BENCH_COLLECTIVE_OVERHEAD_REPORT_H_
#define BENCH_COLLECTIVE_OVERHEAD_REPORT_H_

#include <string>
#include <vector>

#include "bench/collective_overhead/options.h"
#include "bench/collective_overhead/rows.h"
#include "bench/collective_overhead/statistics.h"

namespace nccl_pulse::overhead {

struct Machine {
  std::string gpu;
  int nccl_version = 0;
  int driver_version = 0;
  // Per configuration: processor share of a process while others were measured. Negative: not
  // known.
  std::vector<double> idle_cpu;
};

std::string NcclVersionText(int version);    // 22809: "2.28.9"
std::string DriverVersionText(int version);  // 13000: "13.0"

// "+0.31 % [-0.10, +0.62]"
std::string RatioText(const Comparison& comparison);

// Says of each launch whether its verdicts are valid. Printed first.
std::string TwinText(const std::vector<Row>& rows, const Options& options);
// Counts per configuration; names points that did not pass or were not measured.
std::string Summary(const std::vector<Row>& rows, const Options& options, const Machine& machine);
std::string Csv(const std::vector<Row>& rows);
// One line per point, one column per configuration.
std::string Markdown(const std::vector<Row>& rows, const Options& options);

// Writes atomically, so that a reader never sees a partial file. Returns the error, or nothing.
std::string WriteFile(const std::string& path, const std::string& text);

}  // namespace nccl_pulse::overhead

#endif  // BENCH_COLLECTIVE_OVERHEAD_REPORT_H_
