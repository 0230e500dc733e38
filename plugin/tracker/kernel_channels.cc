#include "plugin/tracker/kernel_channels.h"

namespace nccl_pulse {
namespace {

// A communicator is distrusted when this many of its last 64 multi-channel operations failed their
// checks. Communicators with correct times fail in short bursts, when the GPU laps the poller (9 in
// one recorded run, whose launches carry five operations each). Those whose times are attributed to
// the wrong operations keep failing.
constexpr int kFailuresToDistrust = 16;

}  // namespace

void KernelChannels::Reset() {
  failed_history_.store(0);
  for (auto& start : last_start_ns_) start.store(0);
}

KernelChannels::Verdict KernelChannels::Judge(uint32_t place) {
  const Times& times = times_[place];
  const uint64_t tag = times.tag.load();
  if ((tag & Tag::kTimeMissing) != 0) return {UntimedReason::kLost};
  const uint64_t first_start_ns = times.first_start_ns.load();
  const uint64_t last_start_ns = times.last_start_ns.load();
  const uint64_t first_stop_ns = times.first_stop_ns.load();
  const uint64_t last_stop_ns = times.last_stop_ns.load();
  // All channels of a collective run at the same time. This check also ensures that none stops
  // before it starts.
  const bool overlap = last_start_ns <= first_stop_ns;
  const bool backwards = (tag & Tag::kBackwards) != 0;
  Verdict verdict;
  if (Tag::Stopped(tag) >= 2) {
    const uint64_t recent = failed_history_.load() << 1 | (overlap && !backwards ? 0 : 1);
    failed_history_.store(recent);
    verdict.distrust = __builtin_popcountll(recent) >= kFailuresToDistrust;
  }
  if (!overlap) {
    verdict.untimed = UntimedReason::kOverlap;
  } else if (backwards) {
    verdict.untimed = UntimedReason::kBackwards;
  } else {
    verdict.duration_ns = last_stop_ns - first_start_ns;
  }
  return verdict;
}

}  // namespace nccl_pulse
