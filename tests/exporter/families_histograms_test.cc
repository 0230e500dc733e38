// Durations as histograms: bounds, cells, both forms, and what each is labelled with.
#include <string>
#include <vector>

#include "exporter/exposition/classic_buckets.h"
#include "exporter/exposition/families.h"
#include "exporter/exposition/text_format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/exporter/example_snapshots.h"
#include "tests/exporter/families_page.h"

namespace nccl_pulse {
namespace {

using prometheus::MetricFamily;
using testing::HasSubstr;
using testing::Not;

TEST(Families, HistogramHasAllBucketsWithExactBoundsAndIsCumulative) {
  const std::string page = Page({ExampleProcess()});
  const auto lines = Lines(page, "nccl_operation_duration_seconds_bucket");
  const std::string head = "nccl_operation_duration_seconds_bucket" + std::string(kCommLabels) +
                           R"(,op="AllReduce",size="le_1MiB",timing="kernel",le=")";
  // Up to 2^-18 s are 1 + 2 + 4; 8 and 16 past the last bound.
  const std::vector<std::string> bounds = {"3.814697265625e-06",
                                           "7.62939453125e-06",
                                           "1.52587890625e-05",
                                           "3.0517578125e-05",
                                           "6.103515625e-05",
                                           "0.0001220703125",
                                           "0.000244140625",
                                           "0.00048828125",
                                           "0.0009765625",
                                           "0.001953125",
                                           "0.00390625",
                                           "0.0078125",
                                           "0.015625",
                                           "0.03125",
                                           "0.125",
                                           "1",
                                           "16",
                                           "+Inf"};
  ASSERT_EQ(lines.size(), bounds.size());
  for (std::size_t i = 0; i < bounds.size(); ++i) {
    const int count = i + 1 < bounds.size() ? 7 : 31;
    EXPECT_EQ(lines[i], head + bounds[i] + "\"} " + std::to_string(count));
  }
  const std::string labels =
      std::string(kCommLabels) + R"(,op="AllReduce",size="le_1MiB",timing="kernel"})";
  EXPECT_THAT(Lines(page, "nccl_operation_duration_seconds_count"),
              testing::ElementsAre("nccl_operation_duration_seconds_count" + labels + " 31"));
  EXPECT_THAT(Lines(page, "nccl_operation_duration_seconds_sum"),
              testing::ElementsAre("nccl_operation_duration_seconds_sum" + labels + " 2.5"));
}

TEST(Families, EveryCellCountsInTheFirstBucketThatHoldsIt) {
  for (int cell = 0; cell < kHistogramCells; ++cell) {
    ProcessSnapshot process = ExampleProcess();
    LatencySnapshot latency = process.communicators[0].latencies[0];
    latency.histogram = {};
    latency.histogram.cells[cell] = 1;
    process.communicators[0].latencies = {latency};
    const auto families = BuildFamilies(SnapshotSet({process}), {}, {});
    for (const MetricFamily& family : families) {
      if (family.name != "nccl_operation_duration_seconds") continue;
      const auto& histogram = family.metric.at(0).histogram;
      EXPECT_EQ(histogram.sample_count, 1u);
      EXPECT_EQ(histogram.bucket.size(), kClassicExponents.size());
      for (const auto& bucket : histogram.bucket) {
        EXPECT_EQ(bucket.cumulative_count,
                  CellUpperBoundSeconds(cell) <= bucket.upper_bound ? 1u : 0u)
            << cell << " " << bucket.upper_bound;
      }
    }
  }
}

TEST(Families, NativeHistogramsAreWhereTheFormatCarriesThemAndTheyAreWanted) {
  struct Case {
    const char* setting;
    PageFormat format;
    std::size_t classic, native;
  };
  for (const Case& c :
       {Case{"both", PageFormat::kText, 17, 0}, Case{"both", PageFormat::kOpenMetrics, 17, 0},
        Case{"both", PageFormat::kProtobuf, 17, 1}, Case{"classic", PageFormat::kProtobuf, 17, 0},
        Case{"native", PageFormat::kProtobuf, 0, 1}, Case{"native", PageFormat::kText, 0, 0},
        Case{"classic,nccl_operation_duration_seconds=native", PageFormat::kProtobuf, 0, 1}}) {
    Exposition exposition;
    ASSERT_TRUE(ParseHistograms(c.setting, &exposition));
    const auto families =
        BuildFamilies(SnapshotSet({ExampleProcess()}), {}, {}, exposition, c.format);
    const Family* duration = Find(families, "nccl_operation_duration_seconds");
    ASSERT_NE(duration, nullptr);
    ASSERT_EQ(duration->metric.size(), 1u);
    EXPECT_EQ(duration->metric[0].histogram.bucket.size(), c.classic) << c.setting;
    EXPECT_EQ(duration->native.size(), c.native) << c.setting;
    EXPECT_EQ(duration->metric[0].histogram.sample_count, 31u);
  }
}

TEST(Families, CellsOfEqualLabelsAreAddedUp) {
  const auto families = BuildFamilies(SnapshotSet({ExampleProcess(), ExampleProcess()}), {}, {}, {},
                                      PageFormat::kProtobuf);
  const Family* duration = Find(families, "nccl_operation_duration_seconds");
  ASSERT_EQ(duration->native.size(), 1u);
  EXPECT_EQ(duration->native[0].Count(), 62u);
  EXPECT_EQ(duration->native[0].cells[kOverflowCell], 32u);
  EXPECT_EQ(Find(families, "nccl_operation_completion_seconds")->native.size(), 2u);
}

TEST(Families, ATextPageShowsANativeHistogramWithItsSumAndCount) {
  Exposition exposition;
  ASSERT_TRUE(ParseHistograms("native", &exposition));
  const std::string page =
      TextFormat(BuildFamilies(SnapshotSet({ExampleProcess()}), {}, {}, exposition));
  EXPECT_THAT(Lines(page, "nccl_operation_duration_seconds_bucket"),
              testing::ElementsAre(HasSubstr("le=\"+Inf\"} 31")));
  EXPECT_EQ(Lines(page, "nccl_operation_duration_seconds_count").size(), 1u);
}

TEST(Families, DurationSaysItsTiming) {
  ProcessSnapshot process = ExampleProcess();
  LatencySnapshot stream = process.communicators[0].latencies[0];
  stream.kind = LatencyKind::kDurationStream;
  stream.op = "Grouped";
  process.communicators[0].latencies.push_back(stream);
  const std::string page = Page({process});
  const std::string head = std::string(kCommLabels);
  const std::string kernel = head + R"(,op="AllReduce",size="le_1MiB",timing="kernel"} )";
  const std::string grouped = head + R"(,op="Grouped",size="le_1MiB",timing="stream"} )";
  EXPECT_THAT(
      Lines(page, "nccl_operation_duration_seconds_count"),
      testing::UnorderedElementsAre("nccl_operation_duration_seconds_count" + kernel + "31",
                                    "nccl_operation_duration_seconds_count" + grouped + "31"));
  EXPECT_THAT(Lines(page, "nccl_timed_bus_bytes_total"),
              testing::UnorderedElementsAre("nccl_timed_bus_bytes_total" + kernel + "7168",
                                            "nccl_timed_bus_bytes_total" + grouped + "7168"));
}

TEST(Families, CompletionSaysItsSource) {
  const auto counts = Lines(Page({ExampleProcess()}), "nccl_operation_completion_seconds_count");
  const std::string head = "nccl_operation_completion_seconds_count" + std::string(kCommLabels);
  EXPECT_THAT(counts, testing::ElementsAre(
                          head + R"(,op="AllReduce",size="le_1MiB",source="proxy"} 31)",
                          head + R"(,op="AllReduce",size="overflow",source="kernel"} 31)"));
}

// Beside the duration on the stream: an operation may have both.
TEST(Families, DurationsByNetworkStepsHaveNoClassicBucketsByDefault) {
  ProcessSnapshot process = ExampleProcess();
  process.communicators[0].latencies[0].kind = LatencyKind::kDurationNetwork;
  const std::string page = Page({process});
  const std::string labels =
      std::string(kCommLabels) + R"(,op="AllReduce",size="le_1MiB",timing="network")";
  EXPECT_THAT(page, HasSubstr("nccl_operation_duration_seconds_count" + labels + "} 31\n"));
  EXPECT_THAT(page, HasSubstr("nccl_operation_duration_seconds_sum" + labels + "} 2.5\n"));
  EXPECT_THAT(Lines(page, "nccl_operation_duration_seconds_bucket"),
              testing::ElementsAre("nccl_operation_duration_seconds_bucket" + labels +
                                   R"(,le="+Inf"} 31)"));
  EXPECT_THAT(page, Not(HasSubstr("nccl_timed_bus_bytes_total")));

  const auto native = BuildFamilies(SnapshotSet({process}), {}, {}, {}, PageFormat::kProtobuf);
  EXPECT_EQ(Find(native, "nccl_operation_duration_seconds")->native.size(), 1u);
  for (const auto& [setting, has_buckets] :
       {std::pair{"both", true}, std::pair{"classic", true},
        std::pair{"native,network=both", false},
        std::pair{"native,network=native,nccl_operation_duration_seconds=both", false},
        std::pair{"native,network=both,nccl_operation_duration_seconds=both", true}}) {
    Exposition exposition;
    ASSERT_TRUE(ParseHistograms(setting, &exposition)) << setting;
    const auto families = BuildFamilies(SnapshotSet({process}), {}, {}, exposition);
    EXPECT_EQ(Find(families, "nccl_operation_duration_seconds")->metric[0].histogram.bucket.empty(),
              !has_buckets)
        << setting;
  }
}

}  // namespace
}  // namespace nccl_pulse
