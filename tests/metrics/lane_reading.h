// Keys, and what a lane has counted, as a reader sees it.
#ifndef TESTS_METRICS_LANE_READING_H_
#define TESTS_METRICS_LANE_READING_H_

#include <cstdint>
#include <string>

#include "gtest/gtest.h"
#include "metrics/segment_reader.h"
#include "metrics/testing/test_segment.h"

namespace nccl_pulse {

inline uint64_t CallsKey(NameId op, uint32_t size_class) {
  return SeriesKey::Calls(op, size_class, kNoName, false);
}
inline uint64_t UntimedKey(NameId op, UntimedReason reason) {
  return SeriesKey::Untimed(op, reason);
}

inline CommunicatorSnapshot Read(TestSegment& test, size_t index = 0) {
  ProcessSnapshot snapshot;
  std::string error;
  EXPECT_TRUE(ReadSegment(test.segment().base(), test.segment().bytes(), &snapshot, &error))
      << error;
  return snapshot.communicators.size() > index ? snapshot.communicators[index]
                                               : CommunicatorSnapshot{};
}

inline uint64_t SumOfCalls(const CommunicatorSnapshot& communicator) {
  uint64_t sum = 0;
  for (const CallCountSnapshot& calls : communicator.calls) sum += calls.calls;
  return sum;
}

}  // namespace nccl_pulse

#endif  // TESTS_METRICS_LANE_READING_H_
