// Refusal is the reason for not counting an event, or std::nullopt if it is counted.
//
// A Refusal fits a register. Compilers assemble a std::optional of one byte from two parts, which
// would slow down the dozens of callbacks of a kernel (bench:callbacks,
// KernelTimedCollective24Channels).
//
// Thread: a value. Cost: none.
#ifndef PLUGIN_TRACKER_REFUSAL_H_
#define PLUGIN_TRACKER_REFUSAL_H_

#include <cstdint>
#include <optional>

#include "metrics/kinds.h"

namespace nccl_pulse {

class Refusal {
 public:
  constexpr Refusal(std::nullopt_t) {}     // NOLINT(google-explicit-constructor)
  constexpr Refusal(IgnoredReason reason)  // NOLINT(google-explicit-constructor)
      : reason_(static_cast<uint32_t>(reason)) {}

  constexpr explicit operator bool() const { return reason_ != kNone; }
  constexpr IgnoredReason operator*() const { return static_cast<IgnoredReason>(reason_); }
  friend constexpr bool operator==(Refusal a, Refusal b) { return a.reason_ == b.reason_; }
  friend constexpr bool operator!=(Refusal a, Refusal b) { return !(a == b); }

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  uint32_t reason_ = kNone;
};

}  // namespace nccl_pulse

#endif  // PLUGIN_TRACKER_REFUSAL_H_
