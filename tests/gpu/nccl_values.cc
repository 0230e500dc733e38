#include "tests/gpu/nccl_values.h"

#include <cstring>

#include "tests/gpu/ledger.h"
#include "tests/gpu/nccl_api.h"

namespace nccl_pulse {
namespace {

template <typename T>
void Put(char* to, T value) {
  std::memcpy(to, &value, sizeof(value));
}

uint16_t HalfBits(int value) {  // of an integer from 0 to 2048
  if (value == 0) return 0;
  int exponent = 0;
  while (value >> (exponent + 1) != 0) ++exponent;
  const int mantissa = (value << 10 >> exponent) & 0x3ff;
  return static_cast<uint16_t>((exponent + 15) << 10 | mantissa);
}

uint16_t BfloatBits(int value) {  // of an integer from 0 to 256
  const auto exact = static_cast<float>(value);
  uint32_t bits;
  std::memcpy(&bits, &exact, sizeof(bits));
  return static_cast<uint16_t>(bits >> 16);
}

void Encode(int datatype, int value, char* to) {
  switch (datatype) {
    case kInt8:
    case kUint8:
      return Put(to, static_cast<int8_t>(value));
    case kFloat16:
      return Put(to, HalfBits(value));
    case kBfloat16:
      return Put(to, BfloatBits(value));
    case kFloat32:
      return Put(to, static_cast<float>(value));
    case kFloat64:
      return Put(to, static_cast<double>(value));
    case kInt64:
    case kUint64:
      return Put(to, static_cast<int64_t>(value));
    default:
      return Put(to, static_cast<int32_t>(value));
  }
}

}  // namespace

std::vector<char> Encoded(int datatype, uint64_t count,
                          const std::function<int(uint64_t)>& value_of) {
  const uint64_t element = DatatypeBytes(datatype);
  std::vector<char> bytes(count * element);
  for (uint64_t i = 0; i < count; ++i) Encode(datatype, value_of(i), &bytes[i * element]);
  return bytes;
}

}  // namespace nccl_pulse
