// The OpenMetrics page against the rules of the specification (OpenMetrics 1.0), checked strictly.
#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "exporter/exposition/families.h"
#include "exporter/exposition/text_format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/exporter/example_snapshots.h"

namespace nccl_pulse {
namespace {

using testing::HasSubstr;
using testing::Not;

struct Sample {
  std::string name;
  std::map<std::string, std::string> labels;
  double value = 0;
};

struct ParsedFamily {
  std::string type, unit, help;
  std::vector<Sample> samples;
};

// A page by the grammar of the specification. Everything it does not allow is in `problems`.
class Parser {
 public:
  explicit Parser(std::string_view page) : rest_(page) {
    bool eof = false;
    while (!rest_.empty()) {
      const std::size_t end = rest_.find('\n');
      if (end == rest_.npos) {
        Problem("the last line does not end", rest_);
        return;
      }
      line_ = rest_.substr(0, end);
      rest_.remove_prefix(end + 1);
      if (line_ == "# EOF") {
        eof = true;
        break;
      }
      line_.substr(0, 2) == "# " ? Head() : ReadSample();
    }
    if (!eof || !rest_.empty()) Problem("EOF is not the end", rest_);
    for (const auto& [name, family] : families) CheckFamily(name, family);
  }

  std::map<std::string, ParsedFamily> families;
  std::vector<std::string> problems;

 private:
  void Problem(const std::string& what, std::string_view where) {
    problems.push_back(what + ": " + std::string(where));
  }

  static bool IsName(std::string_view name) {
    for (std::size_t i = 0; i < name.size(); ++i) {
      const bool letter = std::isalpha(static_cast<unsigned char>(name[i])) || name[i] == '_';
      const bool digit = std::isdigit(static_cast<unsigned char>(name[i]));
      if (!letter && !(digit && i > 0)) return false;
    }
    return !name.empty();
  }

  std::string_view TakeWord() {
    const std::string_view word = line_.substr(0, line_.find(' '));
    line_.remove_prefix(std::min(word.size() + 1, line_.size()));
    return word;
  }

  // An escaped string up to `end`; -1: up to the end of the line.
  std::string TakeEscaped(int end) {
    std::string text;
    while (!line_.empty() && line_[0] != end) {
      if (line_[0] == '"') Problem("a quote that is not escaped", line_);
      if (line_[0] == '\\') {
        line_.remove_prefix(1);
        if (line_.empty() || std::string_view("\\\"n").find(line_[0]) == std::string_view::npos) {
          Problem("a backslash that escapes nothing", line_);
          return text;
        }
        text.push_back(line_[0] == 'n' ? '\n' : line_[0]);
      } else {
        text.push_back(line_[0]);
      }
      line_.remove_prefix(1);
    }
    return text;
  }

  void Head() {
    const std::string whole(line_);
    TakeWord();
    const std::string what(TakeWord());
    const std::string name(TakeWord());
    if (!IsName(name)) Problem("no name", whole);
    if (name != name_) {
      if (!seen_.insert(name).second) Problem("a family in two places", whole);
      name_ = name;
    }
    ParsedFamily& family = families[name];
    if (!family.samples.empty()) Problem("metadata after samples", whole);
    std::string* field = what == "TYPE"   ? &family.type
                         : what == "UNIT" ? &family.unit
                         : what == "HELP" ? &family.help
                                          : nullptr;
    if (field == nullptr) return Problem("neither TYPE, UNIT nor HELP", whole);
    if (!field->empty()) Problem("said twice", whole);
    *field = what == "HELP" ? TakeEscaped(-1) : std::string(line_);
    if (field->empty()) Problem("says nothing", whole);
  }

  void ReadSample() {
    const std::string whole(line_);
    Sample sample;
    sample.name = line_.substr(0, line_.find_first_of("{ "));
    line_.remove_prefix(sample.name.size());
    if (!line_.empty() && line_[0] == '{') {
      line_.remove_prefix(1);
      while (true) {
        const std::string label(line_.substr(0, line_.find('=')));
        line_.remove_prefix(std::min(label.size(), line_.size()));
        if (!IsName(label) || line_.substr(0, 2) != "=\"") return Problem("bad label", whole);
        line_.remove_prefix(2);
        if (!sample.labels.emplace(label, TakeEscaped('"')).second) Problem("label twice", whole);
        if (line_.substr(0, 1) != "\"") return Problem("bad label", whole);
        line_.remove_prefix(1);
        if (line_.empty() || (line_[0] != ',' && line_[0] != '}')) {
          return Problem("bad label", whole);
        }
        const bool last = line_[0] == '}';
        line_.remove_prefix(1);
        if (last) break;
      }
    }
    if (line_.substr(0, 1) != " ") return Problem("no value", whole);
    line_.remove_prefix(1);
    const std::string number(line_);
    char* end = nullptr;
    sample.value = std::strtod(number.c_str(), &end);
    if (number.empty() || *end != '\0') Problem("no number, or more than one", whole);
    std::string series = sample.name;
    for (const auto& [name, value] : sample.labels) series += "," + name + "=" + value;
    if (!series_.insert(series).second) Problem("a series twice", whole);
    if (families.count(name_) == 0) return Problem("a sample of no family", whole);
    families[name_].samples.push_back(std::move(sample));
  }

  void CheckFamily(const std::string& name, const ParsedFamily& family) {
    static const std::map<std::string, std::set<std::string>> kSuffixes = {
        {"counter", {"_total"}},
        {"gauge", {""}},
        {"info", {"_info"}},
        {"unknown", {""}},
        {"summary", {"_count", "_sum"}},
        {"histogram", {"_bucket", "_count", "_sum"}}};
    const auto suffixes = kSuffixes.find(family.type);
    if (suffixes == kSuffixes.end()) return Problem("no such type", family.type);
    for (const char* reserved : {"_total", "_info", "_bucket", "_count", "_sum", "_created"}) {
      const std::string suffix = reserved;
      if (name.size() > suffix.size() && name.substr(name.size() - suffix.size()) == suffix) {
        Problem("the family's name ends in what a sample's does", name);
      }
    }
    const std::string unit = "_" + family.unit;
    if (!family.unit.empty() &&
        (name.size() <= unit.size() || name.substr(name.size() - unit.size()) != unit)) {
      Problem("the unit does not end the name", name);
    }
    if (!family.unit.empty() && family.type == "info") Problem("an info with a unit", name);
    for (const Sample& sample : family.samples) {
      const bool belongs = sample.name.substr(0, name.size()) == name;
      const std::string suffix = belongs ? sample.name.substr(name.size()) : "?";
      if (suffixes->second.count(suffix) == 0) Problem("sample of another kind", sample.name);
      if (sample.labels.count("le") != (suffix == "_bucket" ? 1 : 0)) {
        Problem("le where it has no place", sample.name);
      }
      const bool counts = family.type == "counter" || suffix == "_count" || suffix == "_bucket";
      if (counts && !(sample.value >= 0)) Problem("counter below zero", sample.name);
      if (family.type == "info" && sample.value != 1) Problem("info that is not 1", sample.name);
    }
    if (family.type == "histogram") CheckBuckets(family);
  }

  void CheckBuckets(const ParsedFamily& family) {
    double bound = -1;
    double count = -1;
    for (const Sample& sample : family.samples) {
      if (sample.name.find("_bucket") == std::string::npos) {
        if (sample.name.find("_count") == std::string::npos) continue;
        if (!std::isinf(bound) || sample.value != count) Problem("count and +Inf", sample.name);
        bound = count = -1;
        continue;
      }
      const std::string& text = sample.labels.at("le");
      if (text.find_first_of(".eI") == std::string::npos) Problem("le is an integer", text);
      const double le = text == "+Inf" ? INFINITY : std::strtod(text.c_str(), nullptr);
      if (le <= bound || sample.value < count) Problem("buckets out of order", text);
      bound = le;
      count = sample.value;
    }
  }

  std::string_view rest_, line_;
  std::string name_;  // of the family that is being read
  std::set<std::string> seen_, series_;
};

std::string Page(std::vector<ProcessSnapshot> processes, const StaticLabels& labels = {}) {
  return OpenMetricsFormat(BuildFamilies(SnapshotSet(std::move(processes)), labels, {3, 0.125, 4},
                                         {}, PageFormat::kOpenMetrics));
}

TEST(OpenMetrics, TheParserFindsFaults) {
  for (const char* page : {
           "",
           "# TYPE a gauge\na 1\n",
           "# TYPE a gauge\na 1\n# EOF\n\n",
           "# TYPE a counter\na 1\n# EOF\n",
           "# TYPE a_total counter\na_total 1\n# EOF\n",
           "# TYPE a_info gauge\na_info 1\n# EOF\n",
           "# TYPE a gauge\n# UNIT a seconds\na 1\n# EOF\n",
           "# TYPE a gauge\n# HELP a a \" quote\na 1\n# EOF\n",
           "# TYPE a gauge\na 1\na 2\n# EOF\n",
           "# TYPE a gauge\na 1\n# TYPE b gauge\nb 1\n# TYPE a gauge\na{c=\"d\"} 1\n# EOF\n",
           "# TYPE a histogram\na_bucket{le=\"1\"} 1\na_bucket{le=\"+Inf\"} 1\na_count 1\n# EOF\n",
           "# TYPE a histogram\na_bucket{le=\"1.0\"} 1\na_count 1\n# EOF\n",
       }) {
    EXPECT_FALSE(Parser(page).problems.empty()) << page;
  }
}

TEST(OpenMetrics, AWholePageIsValidAndSaysWhatTheTextPageDoes) {
  ProcessSnapshot ended = ExampleProcess();
  ended.pid = 4712;
  ended.end = ProcessEnd::kExit;
  ended.end_realtime_ns = 1760000004000000000;
  const SnapshotSet set({ExampleProcess(), ended});
  const auto families = BuildFamilies(set, {{"cluster", "a\"b\\c\n"}}, {3, 0.125, 4});
  Parser parsed(OpenMetricsFormat(families));
  EXPECT_THAT(parsed.problems, testing::IsEmpty());
  EXPECT_EQ(parsed.families.size(), families.size());
  std::size_t samples = 0;
  for (const auto& [name, family] : parsed.families) samples += family.samples.size();
  const std::string text = TextFormat(families);
  const std::size_t lines = std::count(text.begin(), text.end(), '\n');
  EXPECT_EQ(samples, lines - 2 * families.size());
}

TEST(OpenMetrics, PagesWithLittleOrOddContent) {
  EXPECT_THAT(Parser(Page({})).problems, testing::IsEmpty());
  EXPECT_EQ(OpenMetricsFormat({}), "# EOF\n");
  ProcessSnapshot process = ExampleProcess();
  process.hostname = "\"},{\\";
  process.communicators[0].name = "ünïcödé \xe2\x82\xac {}=\",";
  process.communicators[0].calls[0].op = "\"";
  EXPECT_THAT(Parser(Page({process, process})).problems, testing::IsEmpty());
  Exposition native;
  ASSERT_TRUE(ParseHistograms("native", &native));
  EXPECT_THAT(
      Parser(OpenMetricsFormat(BuildFamilies(SnapshotSet({process}), {}, {}, native))).problems,
      testing::IsEmpty());
}

TEST(OpenMetrics, NamesTypesAndUnits) {
  Parser parsed(Page({ExampleProcess()}));
  EXPECT_EQ(parsed.families["nccl_communicator"].type, "info");
  EXPECT_EQ(parsed.families["nccl_pulse_build"].type, "info");
  EXPECT_EQ(parsed.families["nccl_operations"].type, "counter");
  EXPECT_EQ(parsed.families["nccl_operations"].unit, "");
  EXPECT_EQ(parsed.families["nccl_operation_bytes"].unit, "bytes");
  EXPECT_EQ(parsed.families["nccl_network_wait_seconds"].unit, "seconds");
  EXPECT_EQ(parsed.families["nccl_operation_duration_seconds"].type, "histogram");
  EXPECT_EQ(parsed.families["nccl_operation_duration_seconds"].unit, "seconds");
  EXPECT_EQ(parsed.families["nccl_pulse_scrape_duration_seconds"].type, "summary");
  EXPECT_THAT(parsed.families["nccl_pulse_overflowed_operations"].help,
              HasSubstr("size=\"overflow\""));
  // When a series began is not known for sure.
  EXPECT_THAT(Page({ExampleProcess()}), Not(HasSubstr("_created")));
  EXPECT_THAT(Page({ExampleProcess()}), HasSubstr("le=\"1.0\"} 7\n"));
}

TEST(OpenMetrics, EveryUnitOfTheCatalogueEndsItsName) {
  for (int i = 0; i < kMetrics; ++i) {
    const MetricEntry& entry = CatalogueEntry(static_cast<MetricId>(i));
    if (entry.unit.empty()) continue;
    std::string end = "_" + std::string(entry.unit);
    if (entry.type == prometheus::MetricType::Counter) end += "_total";
    const std::string name(entry.name);
    EXPECT_EQ(name.substr(name.size() - end.size()), end);
  }
}

}  // namespace
}  // namespace nccl_pulse
