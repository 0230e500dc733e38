// EventMasks holds the events that the plugin requests from each NCCL of the process. An NCCL has
// one mask, shared by its communicators. NetworkWindow switches one bit of the masks; MaskMonitor
// detects changes by other tools.
//
// Thread: Configure and WithoutSteps once, before all else. Write, Attach and Detach from init and
// finalize. NetworkWindow::Tick and MaskMonitor::Look from the background thread. No callback waits
// for any of these.
#ifndef PLUGIN_RUNTIME_EVENT_MASKS_H_
#define PLUGIN_RUNTIME_EVENT_MASKS_H_

#include <cstddef>
#include <cstdint>

#include "plugin/runtime/api_version.h"
#include "plugin/runtime/mask_monitor.h"
#include "plugin/runtime/network_window.h"
#include "plugin/runtime/other_events.h"

namespace nccl_pulse {

class EventMasks {
 public:
  // `percent`: share of the time in which network steps are watched; 0 is used if timing is off.
  // `seed`: see NetworkWindow.
  void Configure(TimingMode timing, double percent, uint64_t seed) {
    timing_ = timing;
    window_.Configure(timing == TimingMode::kOff ? 0 : percent, seed);
  }
  // Never watches network steps, whatever was configured.
  void WithoutSteps() { window_.Configure(0, 0); }

  // Returns the events to request from an NCCL of this version.
  uint32_t Of(int api_version) const {
    const bool steps = window_.is_always() && api_version >= kFirstVersionWithNetworkSteps;
    return EventMask(api_version, timing_) | (steps ? abi::kEventProxyStep : 0);
  }

  // Writes the requested events to NCCL's mask; `mask` may be null.
  void Write(int api_version, int* mask) {
    own_events[static_cast<std::size_t>(api_version)].store(Of(api_version));
    if (api_version >= kFirstVersionWithNetworkSteps) {
      window_.Write(mask, WithOthers(api_version));
    } else if (mask != nullptr) {
      // Relaxed, as NCCL reads it; the mask orders nothing.
      __atomic_store_n(mask, static_cast<int>(WithOthers(api_version)), __ATOMIC_RELAXED);
    }
  }

  // Adds a communicator. `context`: its ticket. NCCL keeps `mask` while the communicator lives.
  void Attach(int api_version, uint64_t context, int* mask, uint64_t now_ns) {
    const bool has_steps = api_version >= kFirstVersionWithNetworkSteps;
    const bool is_switched = has_steps && !window_.is_off() && !window_.is_always();
    if (has_steps) window_.Attach(context, mask, WithOthers(api_version), now_ns);
    monitor_.Attach(context, mask, WithOthers(api_version), is_switched ? abi::kEventProxyStep : 0);
  }
  void Detach(uint64_t context, uint64_t now_ns) {
    window_.Detach(context, now_ns);
    monitor_.Detach(context);
  }

  NetworkWindow& window() { return window_; }
  MaskMonitor& monitor() { return monitor_; }

 private:
  // Returns the events of this plugin and of other profilers.
  uint32_t WithOthers(int api_version) const {
    return Of(api_version) | other_events[static_cast<std::size_t>(api_version)].load();
  }

  TimingMode timing_ = TimingMode::kAuto;
  NetworkWindow window_;
  MaskMonitor monitor_;
};

}  // namespace nccl_pulse

#endif  // PLUGIN_RUNTIME_EVENT_MASKS_H_
