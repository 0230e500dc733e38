#include "plugin/runtime/network_window.h"

#include <algorithm>

#include "plugin/abi/common.h"
#include "plugin/runtime/mask_monitor.h"

namespace nccl_pulse {
namespace {

constexpr int kBit = static_cast<int>(abi::kEventProxyStep);

}  // namespace

void NetworkWindow::Configure(double percent, uint64_t seed) {
  percent_ = share_ = percent;
  random_ = seed | 1;  // xorshift never leaves the state zero
}

void NetworkWindow::Write(int* mask, uint32_t value) {
  if (mask == nullptr) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  // Relaxed, here and below, as NCCL reads it: the mask orders nothing.
  __atomic_store_n(mask, static_cast<int>(value) | (open_ ? kBit : 0), __ATOMIC_RELAXED);
}

void NetworkWindow::Attach(uint64_t context, int* mask, uint32_t value, uint64_t now_ns) {
  // A mask that is never switched is never read either, so it may lie anywhere.
  if (is_off() || (!is_always() && !LiesInALibrary(mask))) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  Look(now_ns);
  attached_.push_back({context, mask, static_cast<int>(value) & ~kBit});
  was_on_ = IsOn();
}

void NetworkWindow::Detach(uint64_t context, uint64_t now_ns) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Look(now_ns);
  const auto at = std::find_if(attached_.begin(), attached_.end(),
                               [context](const Attached& a) { return a.context == context; });
  if (at == attached_.end()) return;
  if (attached_.size() == 1 && open_) {
    Switch(false);
    open_ = false;
    next_opening_ns_ = 0;
  }
  attached_.erase(at);
  was_on_ = IsOn();
}

bool NetworkWindow::SetShare(double percent, uint64_t now_ns) {
  if (is_off() || is_always()) return false;
  const std::lock_guard<std::mutex> lock(mutex_);
  Look(now_ns);
  share_ = percent;
  next_opening_ns_ = 0;  // it was planned with the old share
  if (!open_) return true;
  // Close the window now. The time watched at the old share does not lengthen the next pause.
  Switch(false);
  open_ = false;
  was_on_ = IsOn();
  return true;
}

uint64_t NetworkWindow::observed_ns() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return observed_ns_;
}

void NetworkWindow::Look(uint64_t now_ns) {
  const bool on = IsOn();
  if (on && was_on_ && now_ns > last_look_ns_) observed_ns_ += now_ns - last_look_ns_;
  was_on_ = on;
  last_look_ns_ = now_ns;
}

void NetworkWindow::Switch(bool on) {
  for (const Attached& attached : attached_) {
    const int now = __atomic_load_n(attached.mask, __ATOMIC_RELAXED);
    if ((now & ~kBit) != attached.value) continue;  // another plugin or tool has changed it
    if (on) {
      __atomic_fetch_or(attached.mask, kBit, __ATOMIC_RELAXED);
    } else {
      __atomic_fetch_and(attached.mask, ~kBit, __ATOMIC_RELAXED);
    }
  }
}

bool NetworkWindow::IsOn() const {
  // True if any mask has the bit: NCCL then reports steps, so this time must count as watched.
  return std::any_of(attached_.begin(), attached_.end(), [this](const Attached& attached) {
    return is_always() || (__atomic_load_n(attached.mask, __ATOMIC_RELAXED) & kBit) != 0;
  });
}

uint64_t NetworkWindow::PauseNs(uint64_t watched_ns, double from, double to) {
  random_ ^= random_ << 13;
  random_ ^= random_ >> 7;
  random_ ^= random_ << 17;
  const double uniform = static_cast<double>(random_ >> 11) / 9007199254740992.0;  // 2^53
  const double mean_ns = static_cast<double>(watched_ns) * (100 / share_ - 1);
  return static_cast<uint64_t>(mean_ns * (from + (to - from) * uniform)) + 1;
}

void NetworkWindow::Tick(uint64_t now_ns, bool wanted, const std::function<bool()>& prepare) {
  if (is_off()) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  Look(now_ns);
  if (is_always() || attached_.empty() || share_ <= 0) return;
  if (open_) {
    if (share_ >= 100) return;
    // The window's true length: the thread may be late.
    const uint64_t watched_ns = now_ns > opened_ns_ ? now_ns - opened_ns_ : 0;
    if (watched_ns < kLengthNs) return;
    Switch(false);
    open_ = false;
    was_on_ = false;
    next_opening_ns_ = now_ns + PauseNs(watched_ns, 0.5, 1.5);
    return;
  }
  if (!wanted) return;
  // The first window opens at a random time within a pause, so that processes that started together
  // do not open their windows together.
  if (next_opening_ns_ == 0) next_opening_ns_ = now_ns + PauseNs(kLengthNs, 0, 1);
  if (now_ns < next_opening_ns_ || !prepare()) return;
  Switch(true);
  open_ = true;
  was_on_ = true;
  opened_ns_ = now_ns;
}

}  // namespace nccl_pulse
