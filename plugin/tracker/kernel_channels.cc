#include "plugin/tracker/kernel_channels.h"

namespace nccl_pulse {
namespace {

// A communicator is distrusted when so many of its last 64 multi-channel operations failed their
// checks. Sound ones fail in short bursts when the GPU laps the poller (9 in one recorded run,
// whose launches carry five operations each); drifted ones keep failing.
constexpr int kFailuresToDistrust = 16;

}  // namespace

void KernelChannels::Reset() {
  failed_history_.store(0);
  for (auto& start : last_start_ns_) start.store(0);
}

Refusal KernelChannels::Start(const Channel& channel, uint64_t gpu_ns, OperationSlot& slot) {
  OperationMeta meta{};
  if (const Refusal refusal = slot.ReadMeta(channel.generation, &meta)) return refusal;
  Times& times = times_[channel.place];
  uint64_t tag = times.tag.load();
  if (!Tag::IsOf(tag, channel.generation)) {
    tag = Tag::Make(channel.generation, meta.channels);
    times.first_start_ns.store(UINT64_MAX);
    times.last_start_ns.store(0);
    times.first_stop_ns.store(UINT64_MAX);
    times.last_stop_ns.store(0);
    times.mask_a.store(0);
    times.mask_b.store(0);
    times.tag.store(tag);
    if (const Refusal refusal = slot.SeeKernel(channel.generation)) return refusal;
  }
  const uint64_t bit = BitOf(channel);
  const uint64_t mask_a = times.mask_a.load();
  // The channel's first start counts.
  if (((mask_a | times.mask_b.load()) & bit) != 0) return std::nullopt;
  times.mask_a.store(mask_a | bit);
  if (gpu_ns == 0) return std::nullopt;
  if (gpu_ns < times.first_start_ns.load()) times.first_start_ns.store(gpu_ns);
  if (gpu_ns > times.last_start_ns.load()) times.last_start_ns.store(gpu_ns);
  Relaxed<uint64_t>& previous = last_start_ns_[channel.number];
  if (gpu_ns < previous.load()) times.tag.store(tag | Tag::kBackwards);
  // Also when it is older: one timestamp from the future must not condemn all that follow it.
  previous.store(gpu_ns);
  return std::nullopt;
}

Refusal KernelChannels::RecordStop(const Channel& channel, uint64_t gpu_ns,
                                   const OperationSlot& slot) {
  Times& times = times_[channel.place];
  if (!Tag::IsOf(times.tag.load(), channel.generation)) return IgnoredReason::kStaleHandle;
  const uint64_t bit = BitOf(channel);
  const uint64_t mask_b = times.mask_b.load();
  if ((mask_b & bit) != 0) return IgnoredReason::kRepeatedStop;
  if ((times.mask_a.load() & bit) == 0) return IgnoredReason::kStopWithoutStart;
  if (const Refusal refusal = slot.Check(channel.generation)) return refusal;
  times.mask_b.store(mask_b | bit);
  if (gpu_ns < times.first_stop_ns.load()) times.first_stop_ns.store(gpu_ns);
  if (gpu_ns > times.last_stop_ns.load()) times.last_stop_ns.store(gpu_ns);
  return std::nullopt;
}

Refusal KernelChannels::Stop(const Channel& channel, const OperationSlot& slot, bool* all_stopped) {
  Times& times = times_[channel.place];
  uint64_t tag = times.tag.load();
  if (!Tag::IsOf(tag, channel.generation)) return IgnoredReason::kStaleHandle;
  const uint64_t bit = BitOf(channel);
  const uint64_t mask_a = times.mask_a.load();
  const uint64_t mask_b = times.mask_b.load();
  if ((mask_a & bit) == 0) {
    return (mask_b & bit) != 0 ? IgnoredReason::kRepeatedStop : IgnoredReason::kStopWithoutStart;
  }
  if (const Refusal refusal = slot.Check(channel.generation)) return refusal;
  if ((mask_b & bit) == 0) tag |= Tag::kTimeMissing;
  tag += Tag::kOneStopped;
  times.tag.store(tag);
  times.mask_a.store(mask_a & ~bit);
  times.mask_b.store(mask_b | bit);
  *all_stopped = Tag::Stopped(tag) == Tag::Channels(tag);
  return std::nullopt;
}

KernelChannels::Verdict KernelChannels::Judge(uint32_t place) {
  const Times& times = times_[place];
  const uint64_t tag = times.tag.load();
  if ((tag & Tag::kTimeMissing) != 0) return {UntimedReason::kLost};
  const uint64_t first_start_ns = times.first_start_ns.load();
  const uint64_t last_start_ns = times.last_start_ns.load();
  const uint64_t first_stop_ns = times.first_stop_ns.load();
  const uint64_t last_stop_ns = times.last_stop_ns.load();
  // All channels of a collective run at the same time. This also says that none stops before it
  // starts.
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
