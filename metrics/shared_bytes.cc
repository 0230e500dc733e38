#include "metrics/shared_bytes.h"

#include <cstdint>

namespace nccl_pulse {
namespace {

// Returns the length of the well-formed UTF-8 sequence at text[at] (Unicode 15, table 3-7). 0 if
// there is none, or if it is a control character: U+0080 to U+009F start terminal commands.
size_t Utf8SequenceLength(const std::string& text, size_t at) {
  const auto byte = [&](size_t i) -> unsigned {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u;
  };
  const auto continuation = [&](size_t i) { return (byte(i) & 0xc0) == 0x80; };
  const unsigned first = byte(at);
  if (first >= 0xc2 && first <= 0xdf) {
    const bool control = first == 0xc2 && byte(at + 1) < 0xa0;
    return continuation(at + 1) && !control ? 2 : 0;
  }
  if (first >= 0xe0 && first <= 0xef) {
    const unsigned second = byte(at + 1);
    const bool overlong = first == 0xe0 && second < 0xa0;
    const bool surrogate = first == 0xed && second > 0x9f;
    return continuation(at + 1) && continuation(at + 2) && !overlong && !surrogate ? 3 : 0;
  }
  if (first >= 0xf0 && first <= 0xf4) {
    const unsigned second = byte(at + 1);
    const bool overlong = first == 0xf0 && second < 0x90;
    const bool too_large = first == 0xf4 && second > 0x8f;
    return continuation(at + 1) && continuation(at + 2) && continuation(at + 3) && !overlong &&
                   !too_large
               ? 4
               : 0;
  }
  return 0;
}

}  // namespace

std::string CopyFromShared(const char* field, size_t size) {
  const auto byte = [field](size_t i) { return __atomic_load_n(&field[i], __ATOMIC_RELAXED); };
  size_t length = 0;
  while (length < size && byte(length) != '\0') ++length;
  std::string raw(length, '\0');
  bool is_clean = true;
  for (size_t i = 0; i < length; ++i) {
    raw[i] = byte(i);
    is_clean &= raw[i] >= 0x20 && raw[i] < 0x7f;
  }
  if (is_clean) return raw;
  std::string clean;
  clean.reserve(raw.size());
  for (size_t i = 0; i < raw.size();) {
    const auto c = static_cast<unsigned char>(raw[i]);
    if (c >= 0x20 && c < 0x7f) {
      clean.push_back(raw[i++]);
    } else if (const size_t length = Utf8SequenceLength(raw, i)) {
      clean.append(raw, i, length);
      i += length;
    } else {
      clean.push_back('?');
      ++i;
    }
  }
  return clean;
}

}  // namespace nccl_pulse
