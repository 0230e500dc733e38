// The OpenMetrics page (OpenMetrics 1.0) says what the text page does, which promtool checks. //tests/prometheus scrapes it.
#include <regex>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "exporter/exposition/catalogue.h"
#include "exporter/exposition/families.h"
#include "exporter/exposition/text_format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/exporter/example_snapshots.h"

namespace nccl_pulse {
namespace {

using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;
using testing::UnorderedElementsAreArray;

std::vector<std::string> Lines(const std::string& page) {
  return absl::StrSplit(page, '\n', absl::SkipEmpty());
}

// The lines of a text page, by the rules of OpenMetrics: a family has no suffix of its samples, quotes in a HELP are
// escaped, and bounds are no integers.
std::vector<std::string> InOpenMetrics(const std::string& text_page) {
  std::vector<std::string> lines = {"# EOF"};
  for (const std::string& line : Lines(text_page)) {
    const std::vector<std::string> words = absl::StrSplit(line, absl::MaxSplits(' ', 3));
    if (words[0] != "#") {
      lines.push_back(std::regex_replace(line, std::regex("le=\"([0-9]+)\""), "le=\"$1.0\""));
      continue;
    }
    const bool is_info = absl::EndsWith(words[2], "_info");
    const std::string name = std::regex_replace(words[2], std::regex("_(total|info)$"), "");
    const bool is_type = words[1] == "TYPE";
    lines.push_back(absl::StrCat("# ", words[1], " ", name, " ",
                                 is_type && is_info ? "info"
                                 : is_type          ? words[3]
                                           : absl::StrReplaceAll(words[3], {{"\"", "\\\""}})));
  }
  return lines;
}

void ExpectAlike(const std::vector<Family>& families) {
  const std::string page = OpenMetricsFormat(families);
  EXPECT_THAT(page, EndsWith("# EOF\n"));
  std::vector<std::string> lines = Lines(page);
  const auto units = std::stable_partition(lines.begin(), lines.end(), [](const std::string& line) {
    return !absl::StartsWith(line, "# UNIT ");
  });
  for (auto line = units; line != lines.end(); ++line) {
    const std::vector<std::string> words = absl::StrSplit(*line, ' ');
    EXPECT_THAT(words[2], EndsWith("_" + words[3]));
    EXPECT_THAT(page, HasSubstr(absl::StrCat("# TYPE ", words[2], " ")));
  }
  lines.erase(units, lines.end());
  EXPECT_THAT(lines, UnorderedElementsAreArray(InOpenMetrics(TextFormat(families))));
}

std::vector<Family> Families(std::vector<ProcessSnapshot> processes,
                             const Exposition& exposition = {}) {
  return BuildFamilies(SnapshotSet(std::move(processes)), {{"cluster", "a\"b\\c\n"}}, {3, 0.125, 4},
                       exposition);
}

TEST(OpenMetrics, SaysWhatTheTextPageDoes) {
  ProcessSnapshot ended = ExampleProcess();
  ended.pid = 4712;
  ended.end = ProcessEnd::kExit;
  ended.end_realtime_ns = 1760000004000000000;
  ExpectAlike(Families({ExampleProcess(), ended}));
}

TEST(OpenMetrics, PagesWithLittleOrOddContent) {
  ExpectAlike(Families({}));
  EXPECT_THAT(Lines(OpenMetricsFormat({})), ElementsAre("# EOF"));
  ProcessSnapshot process = ExampleProcess();
  process.hostname = "\"},{\\";
  process.communicators[0].name = "ünïcödé \xe2\x82\xac {}=\",";
  process.communicators[0].calls[0].op = "\"";
  ExpectAlike(Families({process, process}));
  Exposition native;
  ASSERT_TRUE(ParseHistograms("native", &native));
  ExpectAlike(Families({process}, native));
}

TEST(OpenMetrics, NamesTypesAndUnits) {
  const std::string page = OpenMetricsFormat(Families({ExampleProcess()}));
  for (const char* head :
       {"TYPE nccl_communicator info", "TYPE nccl_pulse_build info", "TYPE nccl_operations counter",
        "UNIT nccl_operation_bytes bytes", "UNIT nccl_network_wait_seconds seconds",
        "TYPE nccl_operation_duration_seconds histogram",
        "UNIT nccl_operation_duration_seconds seconds",
        "TYPE nccl_pulse_scrape_duration_seconds summary"}) {
    EXPECT_THAT(page, HasSubstr(absl::StrCat("# ", head, "\n")));
  }
  EXPECT_THAT(page, Not(HasSubstr("# UNIT nccl_operations ")));
  EXPECT_THAT(page, HasSubstr("size=\\\"overflow\\\""));
  // When a series began is not known for sure.
  EXPECT_THAT(page, Not(HasSubstr("_created")));
  // Buckets come before their count.
  EXPECT_TRUE(std::regex_search(
      page, std::regex("le=\"\\+Inf\"\\} ([0-9]+)\nnccl_[a-z_]+_count\\{[^}]*\\} \\1\n")));
}

TEST(OpenMetrics, EveryUnitOfTheCatalogueEndsItsName) {
  for (int i = 0; i < kMetrics; ++i) {
    const MetricEntry& entry = CatalogueEntry(static_cast<MetricId>(i));
    if (entry.unit.empty()) continue;
    std::string end = "_" + std::string(entry.unit);
    if (entry.type == prometheus::MetricType::Counter) end += "_total";
    EXPECT_THAT(std::string(entry.name), EndsWith(end));
  }
}

}  // namespace
}  // namespace nccl_pulse
