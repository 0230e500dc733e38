#include "exporter/exposition/page_share.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <utility>

#include "exporter/exposition/families.h"
#include "exporter/exposition/text_format.h"
#include "tests/exporter/example_snapshots.h"

namespace nccl_pulse {
namespace {

ProcessSnapshot Process(int histograms, int counters, const std::string& labels) {
  ProcessSnapshot process = ExampleProcess();
  process.static_labels = labels;
  CommunicatorSnapshot& communicator = process.communicators.front();
  communicator.latencies.clear();
  communicator.calls.clear();
  for (int i = 0; i < histograms; ++i) {
    LatencySnapshot latency;
    latency.kind = LatencyKind::kDurationStream;
    latency.op = "op" + std::to_string(i);
    communicator.latencies.push_back(latency);
  }
  for (int i = 0; i < counters; ++i) {
    communicator.calls.push_back({"op" + std::to_string(i), 1, "ncclFloat", false, 1, 1});
  }
  return process;
}

// The price is no less than the page.
TEST(PageShare, CoversTheText) {
  const std::string long_label = "team=" + std::string(128, 'x');
  std::string many_labels;
  for (char name = 'a'; name <= 'z'; ++name) many_labels += std::string(1, name) + "=1,";
  for (const std::string& labels : {std::string(), long_label, many_labels}) {
    for (const auto& [histograms, counters] :
         {std::pair(1, 1), std::pair(200, 0), std::pair(0, 200)}) {
      const ProcessSnapshot process = Process(histograms, counters, labels);
      const uint64_t price = PageBytes(process);
      const std::size_t text = TextFormat(BuildFamilies({{process}}, {}, {})).size();
      EXPECT_GE(price, text) << histograms << " " << counters << " " << labels;
      EXPECT_LE(price, 16 * text);
    }
  }
}

TEST(PageShare, ADefaultProcessFits) {
  EXPECT_LE(PageBytes(Process(2048, 0, "")), kMaxProcessBytes);
}

// What page_share.h, docs/node-endpoint.md and docs/runbook.md say.
TEST(PageShare, HowManyHistogramsFit) {
  const uint64_t histogram = PageBytes(Process(1001, 0, "")) - PageBytes(Process(1000, 0, ""));
  EXPECT_NEAR(static_cast<double>(histogram) / 1024, 6.9, 0.1);
  EXPECT_NEAR(static_cast<double>(kMaxProcessBytes) / histogram, 2400, 50);
  EXPECT_NEAR(static_cast<double>(kMaxPageBytes) / histogram, 4550, 100);
  ProcessSnapshot process = Process(33, 0, "");
  process.communicators.resize(16, process.communicators.front());
  EXPECT_LE(8 * PageBytes(process), kMaxPageBytes);
  for (CommunicatorSnapshot& each : process.communicators) {
    each.latencies.push_back(each.latencies.back());
  }
  EXPECT_GT(8 * PageBytes(process), kMaxPageBytes);
}

TEST(PageShare, OfFinalizedCommunicatorsTheHistograms) {
  ProcessSnapshot process = Process(100, 50, "team=a");
  process.communicators.resize(1);
  EXPECT_EQ(FinalizedHistogramBytes(process), 0u);
  process.communicators.front().finalized = true;
  const uint64_t finalized = FinalizedHistogramBytes(process);
  EXPECT_EQ(PageBytes(process) - finalized, PageBytes(Process(0, 50, "team=a")));
}

TEST(PageShare, NoMoreLabelsThanItSaysAreOnASeries) {
  std::string labels;
  for (char name = 'a'; name <= 'z'; ++name) labels += std::string(1, name) + "=1,";
  for (const Family& family : BuildFamilies({{Process(1, 1, labels)}}, {}, {})) {
    for (const auto& metric : family.metric) {
      int own = 0;
      for (const auto& label : metric.label) own += label.name.size() == 1 ? 1 : 0;
      EXPECT_LE(own, kMaxStaticLabels) << family.name;
    }
  }
}

TEST(PageShare, WhoHasMostGivesWay) {
  EXPECT_EQ(LargestShare({}), std::nullopt);
  EXPECT_EQ(LargestShare({{1, 0}}), std::nullopt);
  EXPECT_EQ(LargestShare({{1, 3}, {2, 5}, {3, 4}}), 2u);
  EXPECT_EQ(GivesWay({}, 1), 1u);
  EXPECT_EQ(GivesWay({{1, 4}}, 1), 1u);
  EXPECT_EQ(GivesWay({{1, 4}}, 2), 1u);
  EXPECT_EQ(GivesWay({{1, 3}, {2, 1}}, 2), 1u);
  // An exchange that would only turn the two around is none.
  EXPECT_EQ(GivesWay({{1, 2}, {2, 1}}, 2), 2u);
  EXPECT_EQ(GivesWay({{1, 1}}, 2), 2u);
}

}  // namespace
}  // namespace nccl_pulse
