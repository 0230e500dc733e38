#include "bench/collective_overhead/report.h"

#include <cerrno>
#include <cstdio>
#include <map>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace nccl_pulse::overhead {
namespace {

std::string ModeText(const Point& point) {
  return absl::StrCat(Name(point.mode), point.compute ? "+compute" : "");
}

double Percent(double ratio) { return (ratio - 1) * 100; }

std::string DifferenceText(const Comparison& comparison) {
  const Estimate& difference = comparison.difference_us;
  return absl::StrFormat("%+.3f us [%+.3f, %+.3f]", difference.mean, difference.low,
                         difference.high);
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

std::string PlaceOf(const Row& row) {
  std::string place = PointName(row.point);
  if (row.measured == Measured::kTotal) place += " (total)";
  return absl::StrCat(place, ", ", Name(row.launch));
}

}  // namespace

std::string NcclVersionText(int version) {
  return absl::StrCat(version / 10000, ".", version / 100 % 100, ".", version % 100);
}

std::string DriverVersionText(int version) {
  return absl::StrCat(version / 1000, ".", version % 1000 / 10);
}

std::string RatioText(const Comparison& comparison) {
  const Estimate& ratio = comparison.ratio;
  return absl::StrFormat("%+.2f %% [%+.2f, %+.2f]", Percent(ratio.mean), Percent(ratio.low),
                         Percent(ratio.high));
}

std::string TwinText(const std::vector<Row>& rows, const Options& options) {
  std::string text;
  for (const Launch launch : options.launches) {
    const TwinCount twins = CountTwins(rows, launch, options.confidence);
    absl::StrAppend(
        &text, Name(launch), ": twins differ at ", twins.differ, " of ", twins.compared,
        " points; chance explains up to ", twins.by_chance, ".",
        twins.Suspect() ? " THIS MEASUREMENT IS AT FAULT: no verdict of it stands.\n" : "\n");
  }
  return text;
}

std::string Summary(const std::vector<Row>& rows, const Options& options, const Machine& machine) {
  std::string text = absl::StrFormat(
      "%d x %s, NCCL %s, driver for CUDA %s. Stated is the mean over rounds of fresh processes of\n"
      "each round's median, with Student's %g %% interval. Passes: its upper end is below %g %% "
      "or\n"
      "below %g us.\n",
      options.devices.size(), machine.gpu, NcclVersionText(machine.nccl_version),
      DriverVersionText(machine.driver_version), options.confidence * 100,
      options.criterion.relative * 100, options.criterion.absolute_us);
  for (std::size_t i = 0; i < options.configurations.size(); ++i) {
    const Configuration& configuration = options.configurations[i];
    if (IsWithoutPlugin(configuration)) continue;
    std::map<Verdict, std::vector<std::string>> places;
    std::vector<std::string> unmeasured;
    for (const Row& row : rows) {
      if (row.configuration != configuration.name) continue;
      if (row.comparison.pairs == 0) {
        unmeasured.push_back(absl::StrCat(PlaceOf(row), row.note.empty() ? "" : ": ", row.note));
        continue;
      }
      places[row.verdict].push_back(absl::StrCat(PlaceOf(row), ": ", RatioText(row.comparison),
                                                 ", ", DifferenceText(row.comparison),
                                                 row.reason.empty() ? "" : "; ", row.reason));
    }
    absl::StrAppend(&text, configuration.name, ": ", places[Verdict::kPass].size(), " passed, ",
                    places[Verdict::kFail].size(), " failed, ", places[Verdict::kUndecided].size(),
                    " undecided, ", places[Verdict::kSuspect].size(), " suspect, ",
                    unmeasured.size(), " not measured");
    if (i < machine.idle_cpu.size() && machine.idle_cpu[i] >= 0) {
      absl::StrAppendFormat(&text, "; a process took %.2f %% of a processor while it waited",
                            machine.idle_cpu[i] * 100);
    }
    text += "\n";
    const auto list = [&](const char* word, const std::vector<std::string>& of_word) {
      for (const std::string& place : of_word)
        absl::StrAppend(&text, "  ", word, ": ", place, "\n");
    };
    list("failed", places[Verdict::kFail]);
    list("undecided", places[Verdict::kUndecided]);
    list("suspect", places[Verdict::kSuspect]);
    list("not measured", unmeasured);
  }
  return text;
}

std::string Csv(const std::vector<Row>& rows) {
  std::string csv =
      "launch,operation,bytes,mode,compute,time_of,configuration,pairs,rounds,none_us,with_us,"
      "ratio,ratio_low,ratio_high,difference_us,difference_low_us,difference_high_us,mean_ratio,"
      "verdict,reason,note\n";
  for (const Row& row : rows) {
    const Comparison& c = row.comparison;
    absl::StrAppend(&csv, Name(row.launch), ",", Name(row.point.operation), ",", row.point.bytes,
                    ",", Name(row.point.mode), ",", row.point.compute ? "with" : "without", ",",
                    Name(row.measured), ",", row.configuration, ",", c.pairs, ",");
    if (c.pairs > 0) {
      absl::StrAppendFormat(&csv, "%d,%.4f,%.4f,%.6f,%.6f,%.6f,%.4f,%.4f,%.4f,%.6f,",
                            c.rounds.size(), c.base_us, c.with_us, c.ratio.mean, c.ratio.low,
                            c.ratio.high, c.difference_us.mean, c.difference_us.low,
                            c.difference_us.high, c.mean_ratio);
    } else {
      absl::StrAppend(&csv, ",,,,,,,,,,");
    }
    absl::StrAppend(&csv, Name(row.verdict), ",", CsvField(row.reason), ",", CsvField(row.note),
                    "\n");
  }
  return csv;
}

std::string Markdown(const std::vector<Row>& rows, const Options& options) {
  const std::size_t columns = options.configurations.size() - 1;
  if (rows.size() < columns) return {};
  std::string text = "| launch | operation | size | mode | time of | none, µs |";
  for (std::size_t i = 0; i < columns; ++i)
    absl::StrAppend(&text, " ", rows[i].configuration, " |");
  text += "\n|---|---|---|---|---|---|";
  for (std::size_t i = 0; i < columns; ++i) text += "---|";
  text += "\n";
  for (std::size_t first = 0; columns > 0 && first + columns <= rows.size(); first += columns) {
    const Row& row = rows[first];
    double base_us = 0;
    // The base of a plugin, if it exists: the mean of all sets without a plugin.
    for (std::size_t i = first; i < first + columns; ++i) {
      if (rows[i].comparison.pairs > 0) base_us = rows[i].comparison.base_us;
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
      absl::StrAppendFormat(&text, " %s, %+.2f µs, %s |", RatioText(c), c.difference_us.mean,
                            Name(rows[i].verdict));
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
