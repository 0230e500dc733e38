#include "exporter/exposition/protobuf_format.h"

#include <array>
#include <cmath>
#include <cstdint>

#include "exporter/base/protozero.h"

namespace nccl_pulse {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricType;
using protozero::pbf_writer;

// Field numbers, types and enum values: io/prometheus/client/metrics.proto of
// prometheus/client_model.
namespace family_field {
constexpr uint32_t kName = 1, kHelp = 2, kType = 3, kMetric = 4, kUnit = 5;
}
namespace metric_field {
constexpr uint32_t kLabel = 1, kGauge = 2, kCounter = 3, kSummary = 4, kUntyped = 5,
                   kTimestampMs = 6, kHistogram = 7;
}
namespace label_field {
constexpr uint32_t kName = 1, kValue = 2;
}
namespace value_field {  // of a gauge, a counter or an untyped metric
constexpr uint32_t kValue = 1;
}
namespace summary_field {
constexpr uint32_t kCount = 1, kSum = 2, kQuantile = 3;
}
namespace quantile_field {
constexpr uint32_t kQuantile = 1, kValue = 2;
}
namespace histogram_field {
constexpr uint32_t kCount = 1, kSum = 2, kBucket = 3, kSchema = 5, kZeroThreshold = 6,
                   kZeroCount = 7, kPositiveSpan = 12, kPositiveDelta = 13;
}
namespace bucket_field {
constexpr uint32_t kCumulativeCount = 1, kUpperBound = 2;
}
namespace span_field {
constexpr uint32_t kOffset = 1, kLength = 2;
}

int32_t TypeNumber(MetricType type) {
  switch (type) {
    case MetricType::Counter:
      return 0;
    case MetricType::Gauge:
      return 1;
    case MetricType::Summary:
      return 2;
    case MetricType::Histogram:
      return 4;
    case MetricType::Untyped:
      break;
  }
  return 3;
}

// Sizes of fields with their tags, which all take one byte. Messages of known size are written in
// one go; others must be moved once their size is known.
constexpr std::size_t kDoubleBytes = 1 + sizeof(double);
std::size_t VarintBytes(uint64_t value) {
  return 1 + static_cast<std::size_t>(protozero::length_of_varint(value));
}
std::size_t StringBytes(const std::string& text) { return VarintBytes(text.size()) + text.size(); }

// Up to this many consecutive empty buckets are written out: a new span would take more.
constexpr int kMostGap = 2;

// The cells after the zero bucket, as spans of neighboring buckets with their counts.
class Buckets {
 public:
  explicit Buckets(const HistogramSnapshot& histogram) {
    int next = 0;  // the bucket after the last span; the first offset counts from 0
    for (int cell = kZeroCell + 1; cell < kHistogramCells; ++cell) {
      const uint64_t count = histogram.cells[cell];
      if (count == 0) continue;
      const int gap = NativeBucketIndex(cell) - next;
      if (spans_ == 0 || gap > kMostGap) {
        offset_[spans_] = gap;
        length_[spans_] = 0;
        ++spans_;
      } else {
        for (int i = 0; i < gap; ++i) Append(0);
      }
      Append(count);
      next = NativeBucketIndex(cell) + 1;
    }
  }

  void Write(pbf_writer* histogram) const {
    for (int i = 0; i < spans_; ++i) {
      pbf_writer span(*histogram, histogram_field::kPositiveSpan);
      span.add_sint32(span_field::kOffset, offset_[i]);
      span.add_uint32(span_field::kLength, length_[i]);
    }
    histogram->add_packed_sint64(histogram_field::kPositiveDelta, deltas_.begin(),
                                 deltas_.begin() + buckets_);
  }

 private:
  void Append(uint64_t count) {
    deltas_[buckets_++] = static_cast<int64_t>(count - last_);  // modulo 2^64, as readers do
    last_ = count;
    ++length_[spans_ - 1];
  }

  std::array<int32_t, kHistogramCells> offset_;
  std::array<uint32_t, kHistogramCells> length_;
  int spans_ = 0;
  std::array<int64_t, kHistogramCells> deltas_;
  int buckets_ = 0;
  uint64_t last_ = 0;
};

void WriteNative(const HistogramSnapshot& native, pbf_writer* histogram) {
  histogram->add_sint32(histogram_field::kSchema, kHistogramSchema);
  // Also marks an empty histogram as a native one.
  histogram->add_double(histogram_field::kZeroThreshold, std::ldexp(1.0, kMinExponent));
  histogram->add_uint64(histogram_field::kZeroCount, native.cells[kZeroCell]);
  Buckets(native).Write(histogram);
}

void WriteHistogram(const ClientMetric::Histogram& classic, const HistogramSnapshot* native,
                    pbf_writer* metric) {
  pbf_writer histogram(*metric, metric_field::kHistogram);
  histogram.add_uint64(histogram_field::kCount, classic.sample_count);
  histogram.add_double(histogram_field::kSum, classic.sample_sum);
  for (const ClientMetric::Bucket& each : classic.bucket) {
    pbf_writer bucket(histogram, histogram_field::kBucket,
                      VarintBytes(each.cumulative_count) + kDoubleBytes);
    bucket.add_uint64(bucket_field::kCumulativeCount, each.cumulative_count);
    bucket.add_double(bucket_field::kUpperBound, each.upper_bound);
  }
  if (native != nullptr) WriteNative(*native, &histogram);
}

void WriteSummary(const ClientMetric::Summary& summary, pbf_writer* metric) {
  pbf_writer out(*metric, metric_field::kSummary);
  out.add_uint64(summary_field::kCount, summary.sample_count);
  out.add_double(summary_field::kSum, summary.sample_sum);
  for (const ClientMetric::Quantile& each : summary.quantile) {
    pbf_writer quantile(out, summary_field::kQuantile);
    quantile.add_double(quantile_field::kQuantile, each.quantile);
    quantile.add_double(quantile_field::kValue, each.value);
  }
}

void WriteValue(uint32_t field, double value, pbf_writer* metric) {
  pbf_writer out(*metric, field, kDoubleBytes);
  out.add_double(value_field::kValue, value);
}

void WriteMetric(MetricType type, const ClientMetric& metric, const HistogramSnapshot* native,
                 pbf_writer* family) {
  pbf_writer out(*family, family_field::kMetric);
  for (const ClientMetric::Label& each : metric.label) {
    pbf_writer label(out, metric_field::kLabel, StringBytes(each.name) + StringBytes(each.value));
    label.add_string(label_field::kName, each.name);
    label.add_string(label_field::kValue, each.value);
  }
  switch (type) {
    case MetricType::Counter:
      WriteValue(metric_field::kCounter, metric.counter.value, &out);
      break;
    case MetricType::Gauge:
      WriteValue(metric_field::kGauge, metric.gauge.value, &out);
      break;
    case MetricType::Untyped:
      WriteValue(metric_field::kUntyped, metric.untyped.value, &out);
      break;
    case MetricType::Summary:
      WriteSummary(metric.summary, &out);
      break;
    case MetricType::Histogram:
      WriteHistogram(metric.histogram, native, &out);
      break;
  }
  if (metric.timestamp_ms != 0) out.add_int64(metric_field::kTimestampMs, metric.timestamp_ms);
}

void WriteFamily(const Family& family, std::string* message) {
  pbf_writer out(*message);
  out.add_string(family_field::kName, family.name);
  if (!family.help.empty()) out.add_string(family_field::kHelp, family.help);
  out.add_enum(family_field::kType, TypeNumber(family.type));
  if (!family.unit.empty()) {
    out.add_string(family_field::kUnit, family.unit.data(), family.unit.size());
  }
  for (std::size_t i = 0; i < family.metric.size(); ++i) {
    WriteMetric(family.type, family.metric[i], family.native.empty() ? nullptr : &family.native[i],
                &out);
  }
}

}  // namespace

std::string ProtobufFormat(const std::vector<Family>& families) {
  std::string page;
  std::string message;
  for (const Family& family : families) {
    message.clear();
    WriteFamily(family, &message);
    protozero::add_varint_to_buffer(&page, message.size());
    page.append(message);
  }
  return page;
}

}  // namespace nccl_pulse
