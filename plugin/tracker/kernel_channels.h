// KernelChannels collects the GPU times of one communicator's operations, by channel, and decides
// whether they are plausible. Kernel timing only.
//
// A channel of an operation is started, gets its stop time, and is stopped. When all channels that
// NCCL reported have stopped, the operation's kernel is done. Its duration is the last GPU stop
// minus the first GPU start, if
//   - each channel has a stop time,
//   - the channels' intervals overlap, as all channels of a collective run at the same time,
//   - no channel starts before the start of its previous operation.
// A communicator with many operations that fail the last two checks is distrusted.
//
// Thread: the communicator's KernelCh thread; NCCL uses one (docs/nccl-profiler-api.md#threads).
// The cells are atomics all the same, so an NCCL that breaks this costs accuracy, not memory
// safety. Judge: also the thread that closed the operation. Reset: the thread of the communicator's
// init. Cost: about 5 ns a callback.
#ifndef PLUGIN_TRACKER_KERNEL_CHANNELS_H_
#define PLUGIN_TRACKER_KERNEL_CHANNELS_H_

#include <cstdint>
#include <optional>

#include "metrics/atomic_cell.h"
#include "metrics/kinds.h"
#include "plugin/tracker/operation_ring.h"
#include "plugin/tracker/operation_slot.h"

namespace nccl_pulse {

inline constexpr int kMaxChannels = 64;  // NCCL 2.28, MAXCHANNELS in src/include/device.h

class KernelChannels {
 public:
  // A channel of the operation at `place` of the OperationRing, in that place's `generation`.
  struct Channel {
    uint32_t place, generation, number;
  };

  // Starts anew for a new communicator.
  void Reset();

  // `gpu_ns`: as in KernelChannelEvent.
  Refusal Start(const Channel& channel, uint64_t gpu_ns, OperationSlot& slot);
  // Fast path for all but the operation's first channel. Returns false, without effect, otherwise.
  bool StartNext(const Channel& channel, uint64_t gpu_ns, const OperationSlot& slot);
  Refusal RecordStop(const Channel& channel, uint64_t gpu_ns, const OperationSlot& slot);
  // Sets `all_stopped` to whether this was the operation's last channel: always false if NCCL does
  // not report the number of channels (CollNet, multi-node NVLS).
  Refusal Stop(const Channel& channel, const OperationSlot& slot, bool* all_stopped);

  // Returns the number of channels that NCCL reported for the last operation started at `place`.
  uint32_t ChannelsOf(uint32_t place) const { return Tag::Channels(times_[place].tag.load()); }
  // True if all started channels have stopped.
  bool IsQuiet(uint32_t place, uint32_t generation) const {
    const Times& times = times_[place];
    return times.mask_a.load() == 0 && Tag::IsOf(times.tag.load(), generation);
  }

  struct Verdict {
    std::optional<UntimedReason> untimed;  // why there is no duration; unset: there is one
    uint64_t duration_ns = 0;
    bool distrust = false;  // too many of the communicator's operations failed the checks
  };
  // Judges the times of the operation at `place`. Call once per operation, because it adds to the
  // communicator's history.
  Verdict Judge(uint32_t place);

 private:
  // kUsed | flags | stopped << 40 | generation << 16 | channels; 0: never used
  struct Tag {
    static constexpr uint64_t kUsed = uint64_t{1} << 63;
    // A channel's start is older than its previous start.
    static constexpr uint64_t kBackwards = uint64_t{1} << 62;
    static constexpr uint64_t kTimeMissing = uint64_t{1} << 61;  // a channel stopped without a time
    static constexpr uint64_t kOneStopped = uint64_t{1} << 40;

    static constexpr uint64_t Make(uint32_t generation, uint8_t channels) {
      return kUsed | uint64_t{generation} << 16 | channels;
    }
    static constexpr bool IsOf(uint64_t tag, uint32_t generation) {
      return (tag & kUsed) != 0 && (tag >> 16 & Ticket::kGenerationMask) == generation;
    }
    static constexpr uint32_t Channels(uint64_t tag) { return static_cast<uint8_t>(tag); }
    static constexpr uint32_t Stopped(uint64_t tag) { return tag >> 40 & 0xff; }
  };
  // Times of one operation. The KernelCh thread's stores are relaxed: its compare-and-swap of the
  // slot's word (operation_slot.h) publishes them to the thread that judges.
  struct Times {
    Relaxed<uint64_t> tag;
    Relaxed<uint64_t> first_start_ns, last_start_ns, first_stop_ns, last_stop_ns;
    // A channel's state in two masks: started = (1, 0), stop time known = (1, 1), stopped = (0, 1).
    Relaxed<uint64_t> mask_a, mask_b;
  };
  static_assert(sizeof(Times) == 56);

  void NoteStart(const Channel& channel, uint64_t gpu_ns, Times& times, uint64_t tag);

  static constexpr uint64_t BitOf(const Channel& channel) { return uint64_t{1} << channel.number; }

  Times times_[kOperationSlots];
  // One bit per operation of several channels, the newest in bit 0. 1: it failed the checks.
  Relaxed<uint64_t> failed_history_;
  Relaxed<uint64_t> last_start_ns_[kMaxChannels];
};

// ---- callbacks: inline, because a kernel makes dozens of them ----

inline Refusal KernelChannels::Start(const Channel& channel, uint64_t gpu_ns, OperationSlot& slot) {
  if (const Refusal refusal = slot.Check(channel.generation)) return refusal;
  Times& times = times_[channel.place];
  uint64_t tag = times.tag.load();
  if (!Tag::IsOf(tag, channel.generation)) {
    OperationMeta meta{};
    if (const Refusal refusal = slot.ReadMeta(channel.generation, &meta)) return refusal;
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
  NoteStart(channel, gpu_ns, times, tag);
  return std::nullopt;
}

inline bool KernelChannels::StartNext(const Channel& channel, uint64_t gpu_ns,
                                      const OperationSlot& slot) {
  Times& times = times_[channel.place];
  const uint64_t tag = times.tag.load();
  if (__builtin_expect(!Tag::IsOf(tag, channel.generation), 0) ||
      __builtin_expect(!slot.IsOpen(channel.generation), 0)) {
    return false;
  }
  NoteStart(channel, gpu_ns, times, tag);
  return true;
}

inline void KernelChannels::NoteStart(const Channel& channel, uint64_t gpu_ns, Times& times,
                                      uint64_t tag) {
  const uint64_t bit = BitOf(channel);
  const uint64_t mask_a = times.mask_a.load();
  // Only a channel's first start counts.
  if (((mask_a | times.mask_b.load()) & bit) != 0) return;
  times.mask_a.store(mask_a | bit);
  if (gpu_ns == 0) return;
  if (gpu_ns < times.first_start_ns.load()) times.first_start_ns.store(gpu_ns);
  if (gpu_ns > times.last_start_ns.load()) times.last_start_ns.store(gpu_ns);
  Relaxed<uint64_t>& previous = last_start_ns_[channel.number];
  if (gpu_ns < previous.load()) times.tag.store(tag | Tag::kBackwards);
  // Stored even if it is older: one timestamp from the future must not fail all later operations.
  previous.store(gpu_ns);
}

inline Refusal KernelChannels::RecordStop(const Channel& channel, uint64_t gpu_ns,
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

inline Refusal KernelChannels::Stop(const Channel& channel, const OperationSlot& slot,
                                    bool* all_stopped) {
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

}  // namespace nccl_pulse

#endif  // PLUGIN_TRACKER_KERNEL_CHANNELS_H_
