#include "bench/collective_overhead/report.h"

#include <cerrno>
#include <cmath>
#include <cstdio>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace nccl_pulse::overhead {
namespace {

std::string VersionOfNccl(int version) {  // 22809: 2.28.9
  return absl::StrCat(version / 10000, ".", version / 100 % 100, ".", version % 100);
}
std::string VersionOfDriver(int version) {  // 13000: CUDA 13.0
  return absl::StrCat(version / 1000, ".", version % 1000 / 10);
}

std::string ModeText(const Point& point) {
  return absl::StrCat(Name(point.mode), point.compute ? "+compute" : "");
}

double Percent(double ratio) { return (ratio - 1) * 100; }

std::string DifferenceText(const Comparison& comparison) {
  const Estimate& difference = comparison.difference_us;
  return absl::StrFormat("%+.3f us [%+.3f, %+.3f]", difference.median, difference.low,
                         difference.high);
}

// JSON has no infinity: an interval without ends is null.
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

std::string CsvField(const std::string& text) {
  if (text.find_first_of(",\"\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"') quoted += '"';
    quoted += c;
  }
  return quoted + "\"";
}

double ValueOf(const Sample& sample, Measured measured) {
  return measured == Measured::kOperations ? sample.operations_us : sample.total_us;
}

std::string JsonEstimate(const Estimate& estimate) {
  return absl::StrCat("{\"median\": ", Number(estimate.median), ", \"low\": ", Number(estimate.low),
                      ", \"high\": ", Number(estimate.high), "}");
}

std::string JsonRow(const Row& row) {
  const Comparison& c = row.comparison;
  std::string json =
      absl::StrCat("{\"measured\": ", Quoted(Name(row.measured)),
                   ", \"configuration\": ", Quoted(row.configuration), ", \"pairs\": ", c.pairs);
  if (c.pairs > 0) {
    absl::StrAppend(&json, ", \"units\": ", c.units, ", \"none_us\": ", Number(c.base_us),
                    ", \"with_us\": ", Number(c.with_us), ", \"ratio\": ", JsonEstimate(c.ratio),
                    ", \"difference_us\": ", JsonEstimate(c.difference_us),
                    ", \"mean_ratio\": ", Number(c.mean_ratio));
  }
  absl::StrAppend(&json, ", \"verdict\": ", Quoted(Name(c.verdict)));
  if (!row.note.empty()) absl::StrAppend(&json, ", \"note\": ", Quoted(row.note));
  return json + "}";
}

std::string PlaceOf(const Row& row) {
  std::string place = PointName(row.point);
  if (row.measured == Measured::kTotal) place += " (total)";
  return absl::StrCat(place, ", ", Name(row.launch));
}

}  // namespace

const char* Name(Measured measured) {
  return measured == Measured::kOperations ? "operations" : "total";
}

std::vector<Row> RowsOf(const PointResult& result, const Options& options) {
  std::vector<Row> rows;
  std::vector<Measured> measured = {Measured::kOperations};
  if (result.point.compute) measured.push_back(Measured::kTotal);
  for (const Measured what : measured) {
    for (std::size_t i = 1; i < options.configurations.size(); ++i) {
      Row row = {result.launch, result.point, what, options.configurations[i].name, {}, {}};
      if (i < result.notes.size()) row.note = result.notes[i];
      std::vector<Pair> pairs;
      for (const Block& block : result.blocks) {
        const double base_us = ValueOf(block.samples[0], what);
        const double with_us = ValueOf(block.samples[i], what);
        if (base_us > 0 && with_us > 0) pairs.push_back({block.round, base_us, with_us});
      }
      if (!pairs.empty()) row.comparison = Compare(pairs, options.confidence, options.criterion);
      rows.push_back(row);
    }
  }
  return rows;
}

std::vector<Row> RowsOf(const std::vector<PointResult>& results, const Options& options) {
  std::vector<Row> rows;
  for (const PointResult& result : results) {
    for (Row& row : RowsOf(result, options)) rows.push_back(std::move(row));
  }
  return rows;
}

std::string RatioText(const Comparison& comparison) {
  const Estimate& ratio = comparison.ratio;
  return absl::StrFormat("%+.2f %% [%+.2f, %+.2f]", Percent(ratio.median), Percent(ratio.low),
                         Percent(ratio.high));
}

std::string Table(const std::vector<Row>& rows) {
  std::string table =
      absl::StrFormat("%-9s %-14s %8s %-20s %-10s %-14s %5s %10s %10s  %-26s %-32s %s\n", "launch",
                      "operation", "size", "mode", "time of", "configuration", "pairs", "none us",
                      "with us", "slowdown", "difference", "verdict");
  for (const Row& row : rows) {
    absl::StrAppendFormat(&table, "%-9s %-14s %8s %-20s %-10s %-14s %5d ", Name(row.launch),
                          Name(row.point.operation), SizeName(row.point.bytes), ModeText(row.point),
                          Name(row.measured), row.configuration, row.comparison.pairs);
    if (row.comparison.pairs == 0) {
      absl::StrAppend(&table, row.note.empty() ? "not measured" : row.note, "\n");
      continue;
    }
    absl::StrAppendFormat(&table, "%10.3f %10.3f  %-26s %-32s %s%s%s\n", row.comparison.base_us,
                          row.comparison.with_us, RatioText(row.comparison),
                          DifferenceText(row.comparison), Name(row.comparison.verdict),
                          row.note.empty() ? "" : ": ", row.note);
  }
  return table;
}

std::string Summary(const std::vector<Row>& rows, const Options& options, const Machine& machine) {
  std::string text = absl::StrFormat(
      "%d x %s, NCCL %s, driver for CUDA %s. Passes: slowdown at most %g %% or %g us, whichever "
      "is\n"
      "larger, by the upper end of the %g %% interval of the median (order statistics of paired "
      "values).\n",
      options.devices.size(), machine.gpu, VersionOfNccl(machine.nccl_version),
      VersionOfDriver(machine.driver_version), options.criterion.relative * 100,
      options.criterion.absolute_us, options.confidence * 100);
  for (std::size_t i = 1; i < options.configurations.size(); ++i) {
    const Configuration& configuration = options.configurations[i];
    int passed = 0;
    std::vector<std::string> failed, undecided, unmeasured;
    for (const Row& row : rows) {
      if (row.configuration != configuration.name) continue;
      if (row.comparison.pairs == 0) {
        unmeasured.push_back(absl::StrCat(PlaceOf(row), row.note.empty() ? "" : ": ", row.note));
      } else if (row.comparison.verdict == Verdict::kPass) {
        ++passed;
      } else {
        (row.comparison.verdict == Verdict::kFail ? failed : undecided)
            .push_back(absl::StrCat(PlaceOf(row), ": ", RatioText(row.comparison), ", ",
                                    DifferenceText(row.comparison)));
      }
    }
    absl::StrAppend(&text, configuration.name, ": ", passed, " passed, ", failed.size(),
                    " failed, ", undecided.size(), " undecided, ", unmeasured.size(),
                    " not measured");
    if (i < machine.idle_cpu.size() && machine.idle_cpu[i] >= 0) {
      absl::StrAppendFormat(&text, "; a process took %.2f %% of a processor while it waited",
                            machine.idle_cpu[i] * 100);
    }
    text += "\n";
    for (const auto& [word, places] :
         {std::make_pair("failed", &failed), std::make_pair("undecided", &undecided),
          std::make_pair("not measured", &unmeasured)}) {
      for (const std::string& place : *places) {
        absl::StrAppend(&text, "  ", word, ": ", place, "\n");
      }
    }
  }
  return text;
}

std::string Csv(const std::vector<Row>& rows) {
  std::string csv =
      "launch,operation,bytes,mode,compute,time_of,configuration,pairs,units,none_us,with_us,ratio,"
      "ratio_low,ratio_high,difference_us,difference_low_us,difference_high_us,mean_ratio,verdict,"
      "note\n";
  for (const Row& row : rows) {
    const Comparison& c = row.comparison;
    absl::StrAppend(&csv, Name(row.launch), ",", Name(row.point.operation), ",", row.point.bytes,
                    ",", Name(row.point.mode), ",", row.point.compute ? "with" : "without", ",",
                    Name(row.measured), ",", row.configuration, ",", c.pairs, ",");
    if (c.pairs > 0) {
      absl::StrAppendFormat(&csv, "%d,%.4f,%.4f,%.6f,%.6f,%.6f,%.4f,%.4f,%.4f,%.6f,%s,", c.units,
                            c.base_us, c.with_us, c.ratio.median, c.ratio.low, c.ratio.high,
                            c.difference_us.median, c.difference_us.low, c.difference_us.high,
                            c.mean_ratio, Name(c.verdict));
    } else {
      absl::StrAppend(&csv, ",,,,,,,,,,", Name(c.verdict), ",");
    }
    absl::StrAppend(&csv, CsvField(row.note), "\n");
  }
  return csv;
}

std::string Json(const std::vector<PointResult>& results, const Options& options,
                 const Machine& machine) {
  std::string json =
      absl::StrCat("{\n\"gpu\": ", Quoted(machine.gpu), ", \"ranks\": ", options.devices.size(),
                   ", \"nccl\": ", Quoted(VersionOfNccl(machine.nccl_version)),
                   ", \"cuda_driver\": ", Quoted(VersionOfDriver(machine.driver_version)),
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
  for (std::size_t i = 0; i < results.size(); ++i) {
    const PointResult& result = results[i];
    absl::StrAppend(
        &json, i == 0 ? "\n" : ",\n", " {\"launch\": ", Quoted(Name(result.launch)),
        ", \"operation\": ", Quoted(Name(result.point.operation)),
        ", \"bytes\": ", result.point.bytes, ", \"mode\": ", Quoted(Name(result.point.mode)),
        ", \"compute\": ", result.point.compute ? "true" : "false", ",\n  \"comparisons\": [");
    std::vector<std::string> rows;
    for (const Row& row : RowsOf(result, options)) rows.push_back(JsonRow(row));
    absl::StrAppend(&json, absl::StrJoin(rows, ",\n   "), "]");
    // Per configuration, in their order; one value per block, null where it took no part.
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

std::string Markdown(const std::vector<Row>& rows, const Options& options) {
  std::string text = "| launch | operation | size | mode | time of | none, µs |";
  for (std::size_t i = 1; i < options.configurations.size(); ++i) {
    absl::StrAppend(&text, " ", options.configurations[i].name, " |");
  }
  text += "\n|---|---|---|---|---|---|";
  for (std::size_t i = 1; i < options.configurations.size(); ++i) text += "---|";
  text += "\n";
  const std::size_t columns = options.configurations.size() - 1;
  for (std::size_t first = 0; columns > 0 && first + columns <= rows.size(); first += columns) {
    const Row& row = rows[first];
    double base_us = 0;
    for (std::size_t i = first; i < first + columns; ++i) {
      if (rows[i].comparison.pairs > 0 && base_us == 0) base_us = rows[i].comparison.base_us;
    }
    absl::StrAppendFormat(&text, "| %s | %s | %s | %s | %s | %s |", Name(row.launch),
                          Name(row.point.operation), SizeName(row.point.bytes), ModeText(row.point),
                          Name(row.measured), base_us > 0 ? absl::StrFormat("%.2f", base_us) : "");
    for (std::size_t i = first; i < first + columns; ++i) {
      const Comparison& c = rows[i].comparison;
      if (c.pairs == 0) {
        text += " not measured |";
        continue;
      }
      absl::StrAppendFormat(&text, " %s, %+.2f µs, %s |", RatioText(c), c.difference_us.median,
                            Name(c.verdict));
    }
    text += "\n";
  }
  return text;
}

std::string WriteFile(const std::string& path, const std::string& text) {
  const std::string next = path + ".new";
  FILE* file = fopen(next.c_str(), "w");
  if (file == nullptr) return absl::StrCat(next, ": ", std::generic_category().message(errno));
  const bool written = fwrite(text.data(), 1, text.size(), file) == text.size();
  if (fclose(file) != 0 || !written || rename(next.c_str(), path.c_str()) != 0) {
    return absl::StrCat(path, ": ", std::generic_category().message(errno));
  }
  return {};
}

}  // namespace nccl_pulse::overhead
