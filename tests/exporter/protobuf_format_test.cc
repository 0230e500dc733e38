// The protobuf page, decoded again: what went in comes out.
#include "exporter/exposition/protobuf_format.h"

#include <cmath>
#include <cstdint>
#include <map>
#include <protozero/pbf_reader.hpp>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/exporter/example_snapshots.h"

namespace nccl_pulse {
namespace {

using protozero::pbf_reader;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;

struct DecodedHistogram {
  uint64_t count = 0;
  double sum = 0;
  std::vector<std::pair<double, uint64_t>> classic;  // upper bound, cumulative count
  bool native = false;
  int32_t schema = 0;
  double zero_threshold = 0;
  uint64_t zero_count = 0;
  int spans = 0;
  std::map<int32_t, uint64_t> buckets;  // by index, empty ones left out
};

struct DecodedMetric {
  std::map<std::string, std::string> labels;
  double value = 0;
  uint64_t summary_count = 0;
  double summary_sum = 0;
  DecodedHistogram histogram;
};

struct DecodedFamily {
  std::string name, help, unit;
  int type = 0;
  std::vector<DecodedMetric> metrics;
};

DecodedHistogram DecodeHistogram(pbf_reader message) {
  DecodedHistogram histogram;
  std::vector<std::pair<int32_t, uint32_t>> spans;
  std::vector<int64_t> deltas;
  while (message.next()) {
    switch (message.tag()) {
      case 1:
        histogram.count = message.get_uint64();
        break;
      case 2:
        histogram.sum = message.get_double();
        break;
      case 3: {
        pbf_reader bucket = message.get_message();
        EXPECT_TRUE(bucket.next(1));
        const uint64_t count = bucket.get_uint64();
        EXPECT_TRUE(bucket.next(2));
        histogram.classic.emplace_back(bucket.get_double(), count);
        break;
      }
      case 5:
        histogram.schema = message.get_sint32();
        break;
      case 6:
        histogram.zero_threshold = message.get_double();
        histogram.native = true;
        break;
      case 7:
        histogram.zero_count = message.get_uint64();
        break;
      case 12: {
        pbf_reader span = message.get_message();
        EXPECT_TRUE(span.next(1));
        const int32_t offset = span.get_sint32();
        EXPECT_TRUE(span.next(2));
        spans.emplace_back(offset, span.get_uint32());
        break;
      }
      case 13:
        for (const int64_t delta : message.get_packed_sint64()) deltas.push_back(delta);
        break;
      default:
        ADD_FAILURE() << "histogram field " << message.tag();
        message.skip();
    }
  }
  histogram.spans = static_cast<int>(spans.size());
  int32_t index = 0;
  uint64_t count = 0;
  std::size_t next = 0;
  for (const auto& [offset, length] : spans) {
    index += offset;
    for (uint32_t i = 0; i < length && next < deltas.size(); ++i) {
      count += static_cast<uint64_t>(deltas[next++]);
      if (count != 0) histogram.buckets[index] = count;
      ++index;
    }
  }
  EXPECT_EQ(next, deltas.size());
  return histogram;
}

DecodedMetric DecodeMetric(pbf_reader message) {
  DecodedMetric metric;
  while (message.next()) {
    if (message.tag() == 7) {
      metric.histogram = DecodeHistogram(message.get_message());
      continue;
    }
    const uint32_t tag = message.tag();
    pbf_reader part = message.get_message();
    while (part.next()) {
      if (tag == 1 && part.tag() == 1) {
        const std::string name = part.get_string();
        EXPECT_TRUE(part.next(2));
        EXPECT_TRUE(metric.labels.emplace(name, part.get_string()).second);
      } else if ((tag == 2 || tag == 3 || tag == 5) && part.tag() == 1) {
        metric.value = part.get_double();
      } else if (tag == 4 && part.tag() == 1) {
        metric.summary_count = part.get_uint64();
      } else if (tag == 4 && part.tag() == 2) {
        metric.summary_sum = part.get_double();
      } else {
        ADD_FAILURE() << "metric field " << tag << " " << part.tag();
        part.skip();
      }
    }
  }
  return metric;
}

std::vector<DecodedFamily> Decode(const std::string& page) {
  std::vector<DecodedFamily> families;
  const char* at = page.data();
  const char* end = at + page.size();
  while (at < end) {
    const uint64_t size = protozero::decode_varint(&at, end);
    EXPECT_LE(size, static_cast<uint64_t>(end - at));
    DecodedFamily& family = families.emplace_back();
    pbf_reader message(at, size);
    at += size;
    while (message.next()) {
      switch (message.tag()) {
        case 1:
          family.name = message.get_string();
          break;
        case 2:
          family.help = message.get_string();
          break;
        case 3:
          family.type = message.get_enum();
          break;
        case 4:
          family.metrics.push_back(DecodeMetric(message.get_message()));
          break;
        case 5:
          family.unit = message.get_string();
          break;
        default:
          ADD_FAILURE() << "family field " << message.tag();
          message.skip();
      }
    }
  }
  return families;
}

std::vector<Family> Build(const ProcessSnapshot& process, const char* histograms = "both") {
  Exposition exposition;
  EXPECT_TRUE(ParseHistograms(histograms, &exposition));
  return BuildFamilies(SnapshotSet({process}), {{"cluster", "a\"b"}}, {3, 0.125, 4}, exposition,
                       PageFormat::kProtobuf);
}

DecodedHistogram EncodeAndDecode(const HistogramSnapshot& histogram) {
  ProcessSnapshot process = ExampleProcess();
  process.communicators[0].latencies.resize(1);
  process.communicators[0].latencies[0].histogram = histogram;
  for (const DecodedFamily& family : Decode(ProtobufFormat(Build(process)))) {
    if (family.name == "nccl_operation_duration_seconds") return family.metrics.at(0).histogram;
  }
  ADD_FAILURE();
  return {};
}

TEST(ProtobufFormat, AWholePageComesOutAsItWentIn) {
  const std::vector<Family> families = Build(ExampleProcess());
  const std::vector<DecodedFamily> decoded = Decode(ProtobufFormat(families));
  ASSERT_EQ(decoded.size(), families.size());
  for (std::size_t i = 0; i < families.size(); ++i) {
    const Family& in = families[i];
    const DecodedFamily& out = decoded[i];
    EXPECT_EQ(out.name, in.name);
    EXPECT_EQ(out.help, in.help);
    EXPECT_EQ(out.unit, in.unit);
    ASSERT_EQ(out.metrics.size(), in.metric.size());
    for (std::size_t j = 0; j < in.metric.size(); ++j) {
      std::map<std::string, std::string> labels;
      for (const auto& label : in.metric[j].label) labels[label.name] = label.value;
      EXPECT_EQ(out.metrics[j].labels, labels);
      EXPECT_EQ(out.metrics[j].summary_count, in.metric[j].summary.sample_count);
      EXPECT_EQ(out.metrics[j].summary_sum, in.metric[j].summary.sample_sum);
      EXPECT_EQ(out.metrics[j].histogram.count, in.metric[j].histogram.sample_count);
      EXPECT_EQ(out.metrics[j].histogram.sum, in.metric[j].histogram.sample_sum);
      EXPECT_EQ(out.metrics[j].value, in.metric[j].counter.value + in.metric[j].gauge.value);
    }
  }
}

TEST(ProtobufFormat, TypesAreThoseOfTheMessageDefinition) {
  std::map<std::string, int> types;
  for (const DecodedFamily& family : Decode(ProtobufFormat(Build(ExampleProcess())))) {
    types[family.name] = family.type;
  }
  EXPECT_EQ(types["nccl_operations_total"], 0);
  EXPECT_EQ(types["nccl_communicator_info"], 1);
  EXPECT_EQ(types["nccl_pulse_scrape_duration_seconds"], 2);
  EXPECT_EQ(types["nccl_operation_duration_seconds"], 4);
  Family untyped;
  untyped.name = "x";
  untyped.type = prometheus::MetricType::Untyped;
  untyped.metric.emplace_back().untyped.value = 7;
  const auto decoded = Decode(ProtobufFormat({untyped}));
  EXPECT_EQ(decoded.at(0).type, 3);
  EXPECT_EQ(decoded[0].metrics.at(0).value, 7);
}

TEST(ProtobufFormat, EveryCellIsTheNativeBucketOfItsBounds) {
  for (int cell = 0; cell < kHistogramCells; ++cell) {
    HistogramSnapshot histogram;
    histogram.cells[cell] = 5;
    const DecodedHistogram decoded = EncodeAndDecode(histogram);
    EXPECT_EQ(decoded.schema, 3);
    EXPECT_EQ(decoded.zero_threshold, CellUpperBoundSeconds(kZeroCell));
    EXPECT_EQ(decoded.count, 5u);
    EXPECT_EQ(decoded.zero_count, cell == kZeroCell ? 5u : 0u);
    if (cell == kZeroCell) {
      EXPECT_THAT(decoded.buckets, IsEmpty());
      continue;
    }
    ASSERT_EQ(decoded.buckets.size(), 1u);
    // A bucket of schema 3 with index i ends at 2^(i/8).
    const int index = decoded.buckets.begin()->first;
    EXPECT_EQ(decoded.buckets.at(index), 5u);
    if (cell == kOverflowCell) {
      EXPECT_EQ(index, 81);  // the bucket behind the last boundary
    } else {
      EXPECT_EQ(std::exp2(index / 8.0), CellUpperBoundSeconds(cell));
    }
  }
}

TEST(ProtobufFormat, RandomHistogramsLoseNothing) {
  std::mt19937_64 random(20260101);
  for (int round = 0; round < 200; ++round) {
    HistogramSnapshot histogram;
    const int used = static_cast<int>(random() % kHistogramCells);
    for (int i = 0; i < used; ++i) {
      // Large, small and enormous counts beside each other.
      histogram.cells[random() % kHistogramCells] = random() >> (8 + random() % 56);
    }
    histogram.sum_ns = random();
    const DecodedHistogram decoded = EncodeAndDecode(histogram);
    std::map<int32_t, uint64_t> expected;
    uint64_t sum = decoded.zero_count;
    for (int cell = 1; cell < kHistogramCells; ++cell) {
      if (histogram.cells[cell] != 0) expected[NativeBucketIndex(cell)] = histogram.cells[cell];
    }
    for (const auto& [index, count] : decoded.buckets) sum += count;
    EXPECT_EQ(decoded.buckets, expected);
    EXPECT_EQ(decoded.zero_count, histogram.cells[kZeroCell]);
    EXPECT_EQ(decoded.count, sum);
    EXPECT_EQ(decoded.count, histogram.Count());
  }
}

TEST(ProtobufFormat, SmallGapsCostNoSpan) {
  HistogramSnapshot histogram;
  histogram.cells[10] = histogram.cells[13] = 1;  // two empty ones between
  histogram.cells[17] = 1;                        // three
  const DecodedHistogram decoded = EncodeAndDecode(histogram);
  EXPECT_EQ(decoded.spans, 2);
  EXPECT_THAT(decoded.buckets, ElementsAre(Pair(-150, 1), Pair(-147, 1), Pair(-143, 1)));
}

TEST(ProtobufFormat, AnEmptyHistogramIsStillNative) {
  const DecodedHistogram decoded = EncodeAndDecode(HistogramSnapshot());
  EXPECT_TRUE(decoded.native);
  EXPECT_GT(decoded.zero_threshold, 0);
  EXPECT_EQ(decoded.count, 0u);
  EXPECT_EQ(decoded.classic.size(), kClassicExponents.size());
}

TEST(ProtobufFormat, ClassicAndNativeByTheSetting) {
  for (const char* setting : {"both", "classic", "native"}) {
    for (const DecodedFamily& family : Decode(ProtobufFormat(Build(ExampleProcess(), setting)))) {
      if (family.type != 4) continue;
      const DecodedHistogram& histogram = family.metrics.at(0).histogram;
      EXPECT_EQ(histogram.native, setting != std::string("classic"));
      EXPECT_EQ(histogram.classic.empty(), setting == std::string("native"));
      EXPECT_EQ(histogram.count, 31u);
    }
  }
}

}  // namespace
}  // namespace nccl_pulse
