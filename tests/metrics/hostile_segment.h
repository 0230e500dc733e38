// Segments to attack the reader with: a small honest one, memory that ends where the segment ends,
// and what must hold of a snapshot whatever it was read from.
#ifndef TESTS_METRICS_HOSTILE_SEGMENT_H_
#define TESTS_METRICS_HOSTILE_SEGMENT_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "metrics/snapshot.h"

namespace nccl_pulse {

inline constexpr uint32_t kSmallCommunicators = 3;
inline constexpr uint32_t kSmallChunks = 24;
inline constexpr size_t kSmallChunksOffset = 30720;  // after the records, a multiple of a chunk
inline constexpr size_t kSmallBytes = kSmallChunksOffset + size_t{kSmallChunks} * 2048;

// An honest segment of three communicators and 24 chunks with something in every part: 70 KiB, so
// that tens of thousands of attacks take seconds.
std::vector<uint8_t> MakeSmallSegment();

// Memory in front of a page that cannot be touched, so that a read past the end ends the test even
// without AddressSanitizer.
class GuardedMemory {
 public:
  explicit GuardedMemory(size_t capacity);
  ~GuardedMemory();
  GuardedMemory(const GuardedMemory&) = delete;
  GuardedMemory& operator=(const GuardedMemory&) = delete;

  // Where `bytes` bytes end at the guard, at most 63 bytes before it: a mapping starts at a page,
  // and the atomics in a segment count on being aligned.
  uint8_t* Place(size_t bytes) { return guard_ - (bytes + 63) / 64 * 64; }

 private:
  uint8_t* base_;
  uint8_t* guard_;
  size_t mapped_;
};

// Reads the segment; what is wrong with the outcome, or "".
std::string ReadAndCheck(const uint8_t* base, size_t bytes);

}  // namespace nccl_pulse

#endif  // TESTS_METRICS_HOSTILE_SEGMENT_H_
