#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "bench/collective_overhead/report.h"

namespace nccl_pulse::overhead {
namespace {

// JSON has no infinity: an unbounded end of an interval is null.
std::string Number(double value) {
  return std::isfinite(value) ? absl::StrFormat("%.6g", value) : "null";
}

std::string Quoted(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      quoted += '\\';
      quoted += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      absl::StrAppendFormat(&quoted, "\\u%04x", static_cast<unsigned char>(c));
    } else {
      quoted += c;
    }
  }
  return quoted + "\"";
}

std::string JsonEstimate(const Estimate& estimate) {
  return absl::StrCat("{\"mean\": ", Number(estimate.mean), ", \"low\": ", Number(estimate.low),
                      ", \"high\": ", Number(estimate.high), "}");
}

std::string JsonRow(const Row& row) {
  const Comparison& c = row.comparison;
  std::string json =
      absl::StrCat("{\"measured\": ", Quoted(Name(row.measured)),
                   ", \"configuration\": ", Quoted(row.configuration),
                   ", \"twin\": ", row.twin ? "true" : "false", ", \"pairs\": ", c.pairs);
  if (c.pairs > 0) {
    absl::StrAppend(&json, ", \"none_us\": ", Number(c.base_us),
                    ", \"with_us\": ", Number(c.with_us), ", \"ratio\": ", JsonEstimate(c.ratio),
                    ", \"difference_us\": ", JsonEstimate(c.difference_us),
                    ", \"mean_ratio\": ", Number(c.mean_ratio), ",\n    \"rounds\": [");
    std::vector<std::string> rounds;
    for (const RoundFigure& figure : c.rounds) {
      rounds.push_back(absl::StrCat("{\"round\": ", figure.round, ", \"pairs\": ", figure.pairs,
                                    ", \"none_us\": ", Number(figure.base_us), ", \"with_us\": ",
                                    Number(figure.with_us), ", \"ratio\": ", Number(figure.ratio),
                                    ", \"difference_us\": ", Number(figure.difference_us), "}"));
    }
    absl::StrAppend(&json, absl::StrJoin(rounds, ",\n     "), "]");
  }
  absl::StrAppend(&json, ", \"verdict\": ", Quoted(Name(row.verdict)));
  if (!row.reason.empty()) absl::StrAppend(&json, ", \"reason\": ", Quoted(row.reason));
  if (!row.note.empty()) absl::StrAppend(&json, ", \"note\": ", Quoted(row.note));
  return json + "}";
}

}  // namespace

std::string Json(const std::vector<PointResult>& results, const std::vector<Row>& all_rows,
                 const Options& options, const Machine& machine) {
  std::string json =
      absl::StrCat("{\n\"gpu\": ", Quoted(machine.gpu), ", \"ranks\": ", options.devices.size(),
                   ", \"nccl\": ", Quoted(NcclVersionText(machine.nccl_version)),
                   ", \"cuda_driver\": ", Quoted(DriverVersionText(machine.driver_version)),
                   ",\n\"confidence\": ", Number(options.confidence),
                   ", \"relative_limit\": ", Number(options.criterion.relative),
                   ", \"absolute_limit_us\": ", Number(options.criterion.absolute_us),
                   ",\n\"configurations\": [");
  for (std::size_t i = 0; i < options.configurations.size(); ++i) {
    const Configuration& configuration = options.configurations[i];
    absl::StrAppend(&json, i == 0 ? "\n" : ",\n", " {\"name\": ", Quoted(configuration.name),
                    ", \"plugin\": ", Quoted(configuration.plugin), ", \"environment\": {");
    std::vector<std::string> variables;
    for (const auto& [name, value] : configuration.environment) {
      variables.push_back(absl::StrCat(Quoted(name), ": ", Quoted(value)));
    }
    absl::StrAppend(&json, absl::StrJoin(variables, ", "), "}");
    if (i < machine.idle_cpu.size() && machine.idle_cpu[i] >= 0) {
      absl::StrAppend(&json, ", \"idle_cpu\": ", Number(machine.idle_cpu[i]));
    }
    json += "}";
  }
  json += "\n],\n\"points\": [";
  auto next_row = all_rows.begin();
  for (std::size_t i = 0; i < results.size(); ++i) {
    const PointResult& result = results[i];
    absl::StrAppend(
        &json, i == 0 ? "\n" : ",\n", " {\"launch\": ", Quoted(Name(result.launch)),
        ", \"operation\": ", Quoted(Name(result.point.operation)),
        ", \"bytes\": ", result.point.bytes, ", \"mode\": ", Quoted(Name(result.point.mode)),
        ", \"compute\": ", result.point.compute ? "true" : "false", ",\n  \"comparisons\": [");
    std::vector<std::string> rows;
    const std::size_t times = result.point.compute ? 2 : 1;
    for (std::size_t row = 0; row < times * (options.configurations.size() - 1); ++row) {
      rows.push_back(JsonRow(*next_row++));
    }
    absl::StrAppend(&json, absl::StrJoin(rows, ",\n   "), "]");
    // Per configuration, in order: one value per block, null if it took no part.
    for (const Measured what : {Measured::kOperations, Measured::kTotal}) {
      if (what == Measured::kTotal && !result.point.compute) continue;
      absl::StrAppend(&json, ",\n  \"samples_", Name(what), "_us\": [");
      for (std::size_t c = 0; c < options.configurations.size(); ++c) {
        std::vector<std::string> values;
        for (const Block& block : result.blocks) {
          const double value = ValueOf(block.samples[c], what);
          values.push_back(value > 0 ? Number(value) : "null");
        }
        absl::StrAppend(&json, c == 0 ? "[" : ", [", absl::StrJoin(values, ", "), "]");
      }
      json += "]";
    }
    std::vector<std::string> rounds;
    for (const Block& block : result.blocks) rounds.push_back(absl::StrCat(block.round));
    absl::StrAppend(&json, ",\n  \"rounds\": [", absl::StrJoin(rounds, ", "), "]}");
  }
  return json + "\n]\n}\n";
}

}  // namespace nccl_pulse::overhead
