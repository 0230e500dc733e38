#include "plugin/runtime/mask_monitor.h"

#include <dlfcn.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "metrics/kinds.h"
#include "plugin/abi/implied_events.h"

namespace nccl_pulse {
namespace {

static_assert(kCallEvents == (abi::kEventCollApi | abi::kEventP2pApi));
static_assert(kLaunchEvents == (abi::kEventKernelLaunch | abi::kEventCeColl));

constexpr uint32_t kTimesOnTheGpu = abi::kEventKernelCh | abi::kEventKernelPhase;

}  // namespace

bool LiesInALibrary(const int* mask) {
  Dl_info info;
  return mask != nullptr && dladdr(mask, &info) != 0;
}

void MaskMonitor::Attach(uint64_t context, const int* mask, uint32_t value, uint32_t switched) {
  if (!LiesInALibrary(mask)) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  attached_.push_back({context, mask});
  const auto same = [mask](const Mask& known) { return known.address == mask; };
  const auto known = std::find_if(masks_.begin(), masks_.end(), same);
  if (known == masks_.end()) masks_.push_back({mask, value, switched, value & ~switched, false});
}

void MaskMonitor::Detach(uint64_t context) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto at = std::find_if(attached_.begin(), attached_.end(),
                               [context](const Attached& a) { return a.context == context; });
  if (at == attached_.end()) return;
  const int* const mask = at->mask;
  attached_.erase(at);
  const bool is_used = std::any_of(attached_.begin(), attached_.end(),
                                   [mask](const Attached& a) { return a.mask == mask; });
  if (is_used) return;
  const auto is_it = [mask](const Mask& known) { return known.address == mask; };
  masks_.erase(std::remove_if(masks_.begin(), masks_.end(), is_it), masks_.end());
}

MaskMonitor::State MaskMonitor::Look() {
  const std::lock_guard<std::mutex> lock(mutex_);
  State state;
  bool is_foreign = false;
  uint32_t common = ~0u;
  for (Mask& mask : masks_) {
    // Relaxed, as NCCL reads and writes it: the mask orders nothing.
    const auto read = static_cast<uint32_t>(__atomic_load_n(mask.address, __ATOMIC_RELAXED));
    const uint32_t compared = read & ~mask.switched;
    if (compared == (mask.value & ~mask.switched)) {
      mask.is_foreign = false;
    } else if (compared != mask.seen) {
      mask.is_foreign = true;
      ++changes_;
      state.is_new = true;
      state.ours = mask.value;
      state.now = read;
    }
    mask.seen = compared;
    if (!mask.is_foreign) continue;
    is_foreign = true;
    common &= read;
  }
  if (is_foreign) state.foreign = common != 0 ? common : kNoEvents;
  state.changes = changes_;
  return state;
}

std::string DescribeMaskChange(uint32_t ours, uint32_t now) {
  const auto lost = [ours, now](uint32_t event) {
    return (ours & event) != 0 && (now & abi::BitsThatBring(event)) == 0;
  };
  const struct {
    bool holds;
    const char* text;
  } consequences[] = {
      {lost(abi::kEventKernelLaunch),
       "launches are no longer seen, so what is in flight is unknown"},
      {lost(abi::kEventCollApi) || lost(abi::kEventP2pApi), "calls are no longer counted"},
      {lost(abi::kEventColl) || lost(abi::kEventP2p), "operations are no longer counted"},
      {lost(abi::kEventCeColl), "copy-engine collectives are no longer seen"},
      {lost(abi::kEventProxyOp), "network traffic is no longer seen"},
      {lost(abi::kEventKernelCh), "GPU timestamps are missing"},
      {(now & ~ours & kTimesOnTheGpu) != 0,
       "GPU timestamps slow the job down, and can hang it if it uses CUDA graphs"},
  };
  std::string text =
      absl::StrCat("NCCL's event mask was changed by another tool (NCCL's RAS?) from 0x",
                   absl::Hex(ours), " to 0x", absl::Hex(now));
  bool any = false;
  for (const auto& consequence : consequences) {
    if (!consequence.holds) continue;
    text += any ? "; " : ": ";
    text += consequence.text;
    any = true;
  }
  if (!any) text += ": the further events are counted as ignored";
  return text + ". Further changes are only counted";
}

}  // namespace nccl_pulse
