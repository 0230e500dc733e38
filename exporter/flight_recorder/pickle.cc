#include "exporter/flight_recorder/pickle.h"

#include <cstring>

namespace nccl_pulse {
namespace {

// Returns the lowest `count` bytes, little-endian.
std::string Bytes(uint64_t value, int count) {
  std::string bytes;
  for (int i = 0; i < count; ++i) bytes.push_back(static_cast<char>(value >> 8 * i));
  return bytes;
}

}  // namespace

Pickle& Pickle::Integer(int64_t value) {
  const auto bits = static_cast<uint64_t>(value);
  if (value >= INT32_MIN && value <= INT32_MAX) return Put("J").Put(Bytes(bits, 4));
  return Put("\x8a\x08").Put(Bytes(bits, 8));  // 8 bytes, two's complement
}

Pickle& Pickle::Real(double value) {
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(bits));
  return Put("G").Put(Bytes(__builtin_bswap64(bits), 8));
}

Pickle& Pickle::Text(std::string_view text) {
  return Put("X").Put(Bytes(text.size(), 4)).Put(text);
}

}  // namespace nccl_pulse
