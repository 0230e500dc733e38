// How the numbers of a snapshot are spelled in a series: times in seconds, labels in digits.
//
// Thread: any, no state.
#ifndef EXPORTER_EXPOSITION_SERIES_VALUES_H_
#define EXPORTER_EXPOSITION_SERIES_VALUES_H_

#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace nccl_pulse {

inline double Seconds(uint64_t ns) { return static_cast<double>(ns) / 1e9; }
inline double Seconds(int64_t ns) { return static_cast<double>(ns) / 1e9; }

// A number as a label value.
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

// At least `width` hexadecimal digits, without "0x".
inline std::string Hex(uint64_t value, std::size_t width) {
  std::array<char, 16> buffer;
  const char* end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, 16).ptr;
  std::string digits(buffer.data(), end - buffer.data());
  return digits.size() < width ? std::string(width - digits.size(), '0') + digits : digits;
}

}  // namespace nccl_pulse

#endif  // EXPORTER_EXPOSITION_SERIES_VALUES_H_
