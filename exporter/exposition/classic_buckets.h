// Defines the classic buckets of all histograms, and formats numbers as label values.
//
// The buckets are few, and the same in every histogram, process and rank. Empty buckets are also
// shown: a bucket that appears later breaks rate(), and a bucket that some histograms lack breaks
// sums. The bounds are an exact subset of the bounds at which durations are recorded
// (metrics/histogram_geometry.h). Bounds up to 31 ms, where most operations end, are factors of two
// apart; the others are further apart, since each bucket costs one series per histogram.
//
// Thread: any, no state.
#ifndef EXPORTER_EXPOSITION_CLASSIC_BUCKETS_H_
#define EXPORTER_EXPOSITION_CLASSIC_BUCKETS_H_

#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "metrics/snapshot.h"
#include "prometheus/client_metric.h"

namespace nccl_pulse {

// Upper bounds, as powers of two in seconds: 3.8 us to 31 ms, 125 ms, 1 s and 16 s.
inline constexpr std::array<int, 17> kClassicExponents = {
    -18, -17, -16, -15, -14, -13, -12, -11, -10, -9, -8, -7, -6, -5, -3, 0, 4};

// Adds `from` to the count, the sum and, if `classic`, the buckets of `to`.
void AddHistogram(const HistogramSnapshot& from, bool classic,
                  prometheus::ClientMetric::Histogram* to);

// Formats a number as a label value.
class Digits {
 public:
  explicit Digits(int64_t value) {
    size_ =
        std::to_chars(buffer_.data(), buffer_.data() + buffer_.size(), value).ptr - buffer_.data();
  }
  operator std::string_view() const {  // NOLINT(google-explicit-constructor)
    return {buffer_.data(), size_};
  }

 private:
  std::array<char, 24> buffer_;
  std::size_t size_;
};

// Returns at least `width` hexadecimal digits, without "0x".
inline std::string Hex(uint64_t value, std::size_t width) {
  std::array<char, 16> buffer;
  const char* end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, 16).ptr;
  std::string digits(buffer.data(), end - buffer.data());
  return digits.size() < width ? std::string(width - digits.size(), '0') + digits : digits;
}

}  // namespace nccl_pulse

#endif  // EXPORTER_EXPOSITION_CLASSIC_BUCKETS_H_
