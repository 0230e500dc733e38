#include "plugin/tracker/unreported_calls.h"

#include "plugin/tracker/clock.h"

namespace nccl_pulse {

bool UnlaunchedCalls::Look(uint32_t record_generation, uint32_t unfinished,
                           const UnreportedCalls& unreported, const PendingCalls& pending,
                           uint64_t operations, bool in_group, bool is_launching,
                           const Clock& clock) {
  if (record_generation_ != record_generation) {
    *this = {};
    record_generation_ = record_generation;
  }
  const bool launched = pending.launch_number != launch_number_;
  const bool is_launched_group = pending.calls == 0 && unreported.IsLastGroup(pending);
  const uint64_t hidden = is_launched_group ? unreported.Hidden(operations)
                          : launched        ? 0
                                            : hidden_;
  // A fresh reading of the clock: this round may already have spent long in the driver.
  const uint64_t now_ns = clock.NowNs();
  if (!is_launching) {
    launching_since_ns_ = 0;
  } else if (launched || launching_since_ns_ == 0) {
    launching_since_ns_ = now_ns;
  }
  const bool is_held = is_launching && now_ns - launching_since_ns_ >= kLongLaunchNs;
  const uint64_t standing =
      unreported.Unlaunched(pending) + unreported.LeftAt(pending.launch_number) + hidden;
  const uint64_t calls = std::min<uint64_t>(unfinished, standing + (is_held ? 1 : 0));
  const bool are_new = calls != calls_ || launched;
  const uint64_t since_ns = calls == 0 ? 0
                            : !are_new ? since_ns_
                            : is_held  ? launching_since_ns_
                                       : now_ns;
  const bool are_in_group = calls != 0 && (in_group || is_held);
  const bool is_new =
      calls != calls_ || since_ns != since_ns_ || are_in_group != this->are_in_group();
  launch_number_ = pending.launch_number;
  hidden_ = static_cast<uint32_t>(hidden);
  calls_ = static_cast<uint32_t>(calls) & INT32_MAX;
  since_ns_ = since_ns;
  are_in_group_ = are_in_group ? 1 : 0;
  return is_new;
}

}  // namespace nccl_pulse
