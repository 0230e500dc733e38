// What the stream timer tests share.
#ifndef TESTS_PLUGIN_STREAM_TIMER_CHECKS_H_
#define TESTS_PLUGIN_STREAM_TIMER_CHECKS_H_

#include <gtest/gtest.h>

#include "tests/plugin/stream_job.h"

namespace nccl_pulse {

// A float of milliseconds holds 24 bits.
inline void ExpectSeconds(uint64_t measured_ns, uint64_t expected_ns, uint64_t samples) {
  const double tolerance =
      static_cast<double>(expected_ns) / (1 << 22) + static_cast<double>(samples);
  EXPECT_NEAR(static_cast<double>(measured_ns), static_cast<double>(expected_ns), tolerance);
}

// Everything that NCCL reported is either timed or has its reason.
inline void ExpectEveryOperationOnce(const CommunicatorSnapshot& measured, uint64_t operations) {
  EXPECT_EQ(TimedOperations(measured) + Untimed(measured), operations);
}

}  // namespace nccl_pulse

#endif  // TESTS_PLUGIN_STREAM_TIMER_CHECKS_H_
