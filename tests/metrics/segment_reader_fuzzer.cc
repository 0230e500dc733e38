#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "tests/metrics/hostile_segment.h"

namespace {

// Magic, version and header size: what would take a fuzzer long to guess, and hides nothing.
constexpr size_t kKnownBytes = 16;

}  // namespace

// The input is laid over an honest segment at the places it names: (offset, length, bytes) pieces.
// So a short input reaches every part of a segment that is otherwise in order.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {  // NOLINT
  static const std::vector<uint8_t> kHonest = nccl_pulse::MakeSmallSegment();
  static nccl_pulse::GuardedMemory memory(nccl_pulse::kSmallBytes);
  size_t bytes = kHonest.size();
  if (size > 0 && data[0] % 4 == 0) bytes -= std::min(bytes, size * 64);  // cut off, now and then
  uint8_t* segment = memory.Place(bytes);
  memcpy(segment, kHonest.data(), bytes);
  for (size_t at = 1; at + 4 <= size;) {
    uint32_t place;
    memcpy(&place, data + at, sizeof(place));
    at += sizeof(place);
    const size_t length = std::min<size_t>((place >> 24) % 64 + 1, size - at);
    const size_t offset = kKnownBytes + (place & 0xffffff) % nccl_pulse::kSmallBytes;
    if (offset + length <= bytes) memcpy(segment + offset, data + at, length);
    at += length;
  }
  const std::string wrong = nccl_pulse::ReadAndCheck(segment, bytes);
  if (!wrong.empty()) {
    fprintf(stderr, "%s\n", wrong.c_str());
    abort();
  }
  return 0;
}
