#include "exporter/exposition/catalogue.h"

#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "gtest/gtest.h"

namespace nccl_pulse {
namespace {

using prometheus::MetricType;

std::vector<MetricEntry> Entries() {
  std::vector<MetricEntry> entries;
  entries.reserve(kMetrics);
  for (int i = 0; i < kMetrics; ++i) entries.push_back(CatalogueEntry(static_cast<MetricId>(i)));
  return entries;
}

bool EndsWith(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

TEST(Catalogue, DocumentIsWhatTheCatalogueSays) {
  std::ifstream file("docs/metrics.md");
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_EQ(text.str(), CatalogueMarkdown())
      << "Run: ./bazelw run //exporter/exposition:catalogue_markdown > docs/metrics.md";
}

TEST(Catalogue, NamesFollowPrometheusRules) {
  std::set<std::string_view> names;
  for (const MetricEntry& entry : Entries()) {
    SCOPED_TRACE(entry.name);
    const bool has_name_of_client_libraries = entry.name.substr(0, 8) == "process_";
    EXPECT_TRUE(entry.name.substr(0, 5) == "nccl_" || has_name_of_client_libraries);
    EXPECT_EQ(entry.name.find_first_not_of("abcdefghijklmnopqrstuvwxyz_"), entry.name.npos);
    EXPECT_EQ(entry.name.find("__"), entry.name.npos);
    EXPECT_TRUE(names.insert(entry.name).second);
    EXPECT_EQ(EndsWith(entry.name, "_total"), entry.type == MetricType::Counter);
    // The base unit stands in the name, before _total.
    if (!entry.unit.empty()) {
      const std::string unit = "_" + std::string(entry.unit);
      EXPECT_TRUE(EndsWith(entry.name, unit) || EndsWith(entry.name, unit + "_total"));
    }
    EXPECT_FALSE(entry.help.empty());
    EXPECT_EQ(entry.help.find_first_of("\\\n|"), entry.help.npos);
  }
}

TEST(Catalogue, LabelNamesAreReservedForIt) {
  for (const MetricEntry& entry : Entries()) {
    std::set<std::string_view> names;
    for (std::string_view name : ScopeLabels(entry.scope)) names.insert(name);
    for (std::string_view name : entry.labels) {
      // global_rank is a label of the process scope and of the info metric, never of one metric
      // twice.
      EXPECT_TRUE(names.insert(name).second) << entry.name << " " << name;
    }
    for (std::string_view name : names) EXPECT_TRUE(IsReservedLabel(name)) << name;
  }
  EXPECT_TRUE(IsReservedLabel("le"));
  EXPECT_TRUE(IsReservedLabel("quantile"));
  EXPECT_FALSE(IsReservedLabel("cluster"));
}

}  // namespace
}  // namespace nccl_pulse
