#include "exporter/exposition/text_format.h"

#include <cmath>
#include <limits>
#include <random>
#include <sstream>

#include "exporter/exposition/families.h"
#include "gtest/gtest.h"
#include "prometheus/text_serializer.h"
#include "tests/exporter/example_snapshots.h"

namespace nccl_pulse {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

std::string ByLibrary(const std::vector<Family>& families) {
  std::ostringstream out;
  prometheus::TextSerializer().Serialize(
      out, std::vector<MetricFamily>(families.begin(), families.end()));
  return out.str();
}

Family Numbers(MetricType type, const std::vector<double>& values) {
  Family family;
  family.name = "numbers";
  family.help = "Numbers.";
  family.type = type;
  for (double value : values) {
    ClientMetric& metric = family.metric.emplace_back();
    metric.label = {{"n", std::to_string(family.metric.size())}};
    metric.counter.value = metric.gauge.value = metric.untyped.value = value;
    metric.summary.sample_sum = metric.histogram.sample_sum = value;
    metric.summary.quantile = {{0.5, value}, {0.99, value}};
    metric.histogram.bucket = {{1, 0.1}, {2, value}};
  }
  return family;
}

constexpr MetricType kTypes[] = {MetricType::Counter, MetricType::Gauge, MetricType::Summary,
                                 MetricType::Untyped, MetricType::Histogram};

TEST(TextFormat, AWholePageIsWhatTheLibraryWrites) {
  const auto families =
      BuildFamilies(SnapshotSet({ExampleProcess()}), {{"cluster", "a"}}, {3, 0.125});
  EXPECT_EQ(TextFormat(families), ByLibrary(families));
}

TEST(TextFormat, SpecialNumbersAreWhatTheLibraryWrites) {
  const double infinity = std::numeric_limits<double>::infinity();
  for (MetricType type : kTypes) {
    const std::vector<Family> families = {Numbers(type, {0.0,
                                                         -0.0,
                                                         1,
                                                         -1,
                                                         0.1,
                                                         1e15,
                                                         999999999999999,
                                                         1e15 - 0.5,
                                                         1e15 + 1,
                                                         9999999999999999.0,
                                                         1e16,
                                                         1e17,
                                                         123456789012345678.0,
                                                         1e22,
                                                         1.8e19,
                                                         1e300,
                                                         5e-324,
                                                         1e-5,
                                                         0.0001,
                                                         infinity,
                                                         -infinity,
                                                         std::nan(""),
                                                         1.0 / 3,
                                                         1760000002.123456789})};
    EXPECT_EQ(TextFormat(families), ByLibrary(families));
  }
}

TEST(TextFormat, RandomNumbersAreWhatTheLibraryWrites) {
  std::mt19937_64 random(20260101);
  std::vector<double> values;
  for (int i = 0; i < 20000; ++i) {
    const double mantissa = static_cast<double>(random());
    values.push_back(std::ldexp(mantissa, static_cast<int>(random() % 200) - 120));
    values.push_back(std::floor(std::ldexp(mantissa, -static_cast<int>(random() % 64))));
  }
  const std::vector<Family> families = {Numbers(MetricType::Gauge, values)};
  EXPECT_EQ(TextFormat(families), ByLibrary(families));
}

TEST(TextFormat, LabelsAreEscapedAndTimestampsWrittenAsTheLibraryDoes) {
  Family family;
  family.name = "labels";
  for (const char* value : {"", "plain", "\"", "\\", "\n", "a\\n\"\n\\\"b", "ünïcödé"}) {
    ClientMetric& metric = family.metric.emplace_back();
    metric.label = {{"a", value}, {"b", "x"}};
    metric.timestamp_ms = 1760000002123;
  }
  family.metric.emplace_back();
  for (MetricType type : kTypes) {
    family.type = type;
    EXPECT_EQ(TextFormat({family}), ByLibrary({family}));
  }
}

}  // namespace
}  // namespace nccl_pulse
