#include "exporter/exposition/text_format.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string_view>

#include "absl/strings/match.h"
#include "absl/strings/strip.h"
#include "exporter/exposition/catalogue.h"

namespace nccl_pulse {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricType;

// As in the library's serializer: 16 digits represent all bucket bounds, which are powers of two,
// exactly.
constexpr int kDigits = std::numeric_limits<double>::max_digits10 - 1;

void AppendNumber(uint64_t value, std::string* out) {
  std::array<char, 24> buffer;
  const char* end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value).ptr;
  out->append(buffer.data(), end - buffer.data());
}

void AppendNumber(double value, std::string* out) {
  // Counters and most gauges are whole numbers. The integer path is several times faster, and
  // prints the same within the common digits.
  constexpr double kExact = 1e15;
  if (value >= 0 && value < kExact && value == std::floor(value) && !std::signbit(value)) {
    AppendNumber(static_cast<uint64_t>(value), out);
  } else if (std::isnan(value)) {
    out->append("Nan");
  } else if (std::isinf(value)) {
    out->append(value < 0 ? "-Inf" : "+Inf");
  } else {
    std::array<char, 32> buffer;
    const char* end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value,
                                    std::chars_format::general, kDigits)
                          .ptr;
    out->append(buffer.data(), end - buffer.data());
  }
}

void AppendEscaped(std::string_view value, std::string* out) {
  const auto is_special = [](char c) { return c == '\\' || c == '"' || c == '\n'; };
  auto start = value.begin();
  while (true) {
    const auto special = std::find_if(start, value.end(), is_special);
    out->append(start, special);
    if (special == value.end()) return;
    start = special + 1;
    out->append(*special == '\n' ? "\\n" : *special == '"' ? "\\\"" : "\\\\");
  }
}

// Estimates the page's size, rather too large: growing would copy it several times.
std::size_t EstimateBytes(const std::vector<Family>& families) {
  constexpr std::size_t kNumber = 12;
  std::size_t bytes = 0;
  for (const Family& family : families) {
    bytes += family.help.size() + 3 * family.name.size() + 64;
    for (const ClientMetric& metric : family.metric) {
      std::size_t line = family.name.size() + kNumber;
      for (const ClientMetric::Label& label : metric.label) {
        line += label.name.size() + label.value.size() + 4;
      }
      bytes += line;
      if (family.type == MetricType::Histogram) {
        bytes += (metric.histogram.bucket.size() + 3) * (line + 32);
      } else if (family.type == MetricType::Summary) {
        bytes += (metric.summary.quantile.size() + 2) * (line + 32);
      }
    }
  }
  return bytes;
}

enum class Dialect { kPrometheus, kOpenMetrics };

constexpr std::string_view kTotal = "_total";
constexpr std::string_view kInfo = "_info";

class Writer {
 public:
  Writer(Dialect dialect, std::size_t bytes) : dialect_(dialect) { out_.reserve(bytes); }

  void Family(const nccl_pulse::Family& family) {
    dialect_ == Dialect::kOpenMetrics ? OpenMetricsHead(family) : PrometheusHead(family);
    for (const ClientMetric& metric : family.metric) {
      SetLabels(metric);
      switch (family.type) {
        case MetricType::Counter:
          Line(family, metric, "", metric.counter.value);
          break;
        case MetricType::Gauge:
          Line(family, metric, "", metric.gauge.value);
          break;
        case MetricType::Untyped:
          Line(family, metric, "", metric.untyped.value);
          break;
        case MetricType::Summary:
          Summary(family, metric);
          break;
        case MetricType::Histogram:
          Histogram(family, metric);
          break;
      }
    }
  }

  std::string Take() && {
    if (dialect_ == Dialect::kOpenMetrics) out_.append("# EOF\n");
    return std::move(out_);
  }

 private:
  // The text of a bucket's bound. Cached: histograms share their bounds.
  struct Bound {
    double value = std::numeric_limits<double>::quiet_NaN();  // not equal to any
    std::string text;
  };

  std::string_view TypeName(MetricType type) const {
    const bool is_unknown = dialect_ == Dialect::kOpenMetrics && type == MetricType::Untyped;
    return is_unknown ? "unknown" : MetricTypeName(type);
  }

  void PrometheusHead(const nccl_pulse::Family& family) {
    if (!family.help.empty()) {
      out_.append("# HELP ").append(family.name).append(" ").append(family.help).append("\n");
    }
    HeadLine("TYPE", family.name, TypeName(family.type));
  }

  void OpenMetricsHead(const nccl_pulse::Family& family) {
    std::string_view name = family.name;
    std::string_view type = TypeName(family.type);
    if (family.type == MetricType::Counter) {
      name = absl::StripSuffix(name, kTotal);
    } else if (family.type == MetricType::Gauge && absl::EndsWith(name, kInfo)) {
      name = absl::StripSuffix(name, kInfo);
      type = "info";
    }
    HeadLine("TYPE", name, type);
    // A unit that does not end the name would make the page invalid.
    if (!family.unit.empty() && absl::EndsWith(name, family.unit)) {
      HeadLine("UNIT", name, family.unit);
    }
    if (family.help.empty()) return;
    out_.append("# HELP ").append(name).push_back(' ');
    AppendEscaped(family.help, &out_);
    out_.push_back('\n');
  }

  void HeadLine(std::string_view what, std::string_view name, std::string_view text) {
    out_.append("# ").append(what).append(" ").append(name).append(" ").append(text).append("\n");
  }

  void SetLabels(const ClientMetric& metric) {
    labels_.clear();
    for (const ClientMetric::Label& label : metric.label) {
      if (!labels_.empty()) labels_.push_back(',');
      labels_.append(label.name).append("=\"");
      AppendEscaped(label.value, &labels_);
      labels_.push_back('"');
    }
  }

  template <typename Number>
  void Line(const nccl_pulse::Family& family, const ClientMetric& metric, std::string_view suffix,
            Number value) {
    out_.append(family.name).append(suffix);
    if (!labels_.empty()) out_.append("{").append(labels_).append("}");
    out_.push_back(' ');
    EndLine(metric, value);
  }

  template <typename Number>
  void LineWithLabel(const nccl_pulse::Family& family, const ClientMetric& metric,
                     std::string_view suffix, std::string_view label_start,
                     std::string_view label_value, Number value) {
    out_.append(family.name).append(suffix).append("{").append(labels_);
    if (!labels_.empty()) out_.push_back(',');
    out_.append(label_start).append(label_value).append("\"} ");
    EndLine(metric, value);
  }

  template <typename Number>
  void EndLine(const ClientMetric& metric, Number value) {
    AppendNumber(value, &out_);
    if (metric.timestamp_ms != 0) AppendTimestamp(metric.timestamp_ms);
    out_.push_back('\n');
  }

  // Appends milliseconds, or seconds for OpenMetrics.
  void AppendTimestamp(int64_t ms) {
    out_.push_back(' ');
    if (dialect_ == Dialect::kOpenMetrics) {
      AppendNumber(static_cast<double>(ms) / 1000, &out_);
    } else {
      out_.append(std::to_string(ms));
    }
  }

  void Summary(const nccl_pulse::Family& family, const ClientMetric& metric) {
    Line(family, metric, "_count", metric.summary.sample_count);
    Line(family, metric, "_sum", metric.summary.sample_sum);
    for (const ClientMetric::Quantile& quantile : metric.summary.quantile) {
      std::string text;
      AppendLabelNumber(quantile.quantile, &text);
      LineWithLabel(family, metric, "", "quantile=\"", text, quantile.value);
    }
  }

  void Histogram(const nccl_pulse::Family& family, const ClientMetric& metric) {
    const ClientMetric::Histogram& histogram = metric.histogram;
    // prometheus-cpp's order, or OpenMetrics'.
    const bool buckets_first = dialect_ == Dialect::kOpenMetrics;
    if (buckets_first) Buckets(family, metric);
    Line(family, metric, "_count", histogram.sample_count);
    Line(family, metric, "_sum", histogram.sample_sum);
    if (!buckets_first) Buckets(family, metric);
  }

  void Buckets(const nccl_pulse::Family& family, const ClientMetric& metric) {
    const ClientMetric::Histogram& histogram = metric.histogram;
    // Most of a page consists of these lines; a histogram's lines have a common beginning.
    start_.assign(family.name).append("_bucket{").append(labels_);
    start_.append(labels_.empty() ? "le=\"" : ",le=\"");
    double last = -std::numeric_limits<double>::infinity();
    for (std::size_t i = 0; i < histogram.bucket.size(); ++i) {
      last = histogram.bucket[i].upper_bound;
      BucketLine(metric, BoundText(i, last), histogram.bucket[i].cumulative_count);
    }
    if (last != std::numeric_limits<double>::infinity()) {
      BucketLine(metric, "+Inf", histogram.sample_count);
    }
  }

  void BucketLine(const ClientMetric& metric, std::string_view bound, uint64_t count) {
    out_.append(start_).append(bound).append("\"} ");
    EndLine(metric, count);
  }

  // Appends a label's number. OpenMetrics requires a form that does not look like an integer.
  void AppendLabelNumber(double value, std::string* text) const {
    AppendNumber(value, text);
    const bool whole = text->find_first_not_of("-0123456789") == text->npos;
    if (dialect_ == Dialect::kOpenMetrics && whole) text->append(".0");
  }

  const std::string& BoundText(std::size_t index, double value) {
    if (index >= bounds_.size()) bounds_.resize(index + 1);
    Bound& bound = bounds_[index];
    if (bound.value != value || value == 0) {  // 0 and -0 are equal, but written differently
      bound.value = value;
      bound.text.clear();
      AppendLabelNumber(value, &bound.text);
    }
    return bound.text;
  }

  const Dialect dialect_;
  std::string out_;
  std::string labels_;
  std::string start_;
  std::vector<Bound> bounds_;
};

std::string Write(Dialect dialect, const std::vector<Family>& families) {
  Writer writer(dialect, EstimateBytes(families));
  for (const Family& family : families) writer.Family(family);
  return std::move(writer).Take();
}

}  // namespace

std::string TextFormat(const std::vector<Family>& families) {
  return Write(Dialect::kPrometheus, families);
}

std::string OpenMetricsFormat(const std::vector<Family>& families) {
  return Write(Dialect::kOpenMetrics, families);
}

}  // namespace nccl_pulse
