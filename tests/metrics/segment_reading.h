// Reads a segment that must be readable.
#ifndef TESTS_METRICS_SEGMENT_READING_H_
#define TESTS_METRICS_SEGMENT_READING_H_

#include <string>

#include "gtest/gtest.h"
#include "metrics/segment_reader.h"
#include "metrics/testing/test_segment.h"

namespace nccl_pulse {

inline ProcessSnapshot Read(const void* base, size_t bytes) {
  ProcessSnapshot snapshot;
  std::string error;
  EXPECT_TRUE(ReadSegment(base, bytes, &snapshot, &error)) << error;
  return snapshot;
}
inline ProcessSnapshot Read(Segment& segment) { return Read(segment.base(), segment.bytes()); }

}  // namespace nccl_pulse

#endif  // TESTS_METRICS_SEGMENT_READING_H_
