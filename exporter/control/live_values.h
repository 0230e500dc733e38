// Holds the settings of a process that can be changed while it runs: their values, their origins,
// and when they revert automatically.
//
// Names and values are those of the variables NCCL_PULSE_*, without that prefix. Values are
// numbers. LOG_LEVEL: 0 (off), 1 (warn) or 2 (info). NETWORK_WINDOW: 0 is off.
// TIMED_LAUNCHES_PER_SECOND: -16 is one-in-16.
//
// Thread: one, which also runs `apply`: in a job the background thread, in an agent its main
// thread. Free functions: any. Cost: allocates. Never in a callback.
#ifndef EXPORTER_CONTROL_LIVE_VALUES_H_
#define EXPORTER_CONTROL_LIVE_VALUES_H_

#include <sys/types.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "metrics/kinds.h"

namespace nccl_pulse {

// The longest time until a setting reverts automatically.
inline constexpr std::chrono::hours kMaxLasting{24 * 7};

// Finds a setting by name, with or without NCCL_PULSE_. Returns false for unknown names.
bool FindLiveSetting(std::string_view name, LiveSetting* setting);
// Returns false for a value that the setting does not accept.
bool ParseLiveValue(LiveSetting setting, std::string_view text, double* value);
std::string SpellLiveValue(LiveSetting setting, double value);
// Returns a description such as "a number from 1 to 86400".
constexpr const char* LiveRange(LiveSetting setting) {
  switch (setting) {
    case LiveSetting::kTimedLaunches:
      return "a number from 1 to 1000000, or one-in-N";
    case LiveSetting::kNetworkWindow:
      return "a share of the time from 0.01 to 100 per cent, or off";
    case LiveSetting::kHangSeconds:
      return "a number from 1 to 86400";
    case LiveSetting::kLogLevel:
      return "off, warn or info";
  }
  return "unknown";
}

// A parsed command "NAME=VALUE". "NAME=default" is the value at start.
struct LiveCommand {
  LiveSetting setting{};
  bool is_default = false;
  double value = 0;
};
// Returns false, with the possible settings in `error`, if `text` is invalid.
bool ParseLiveCommand(std::string_view text, LiveCommand* command, std::string* error);

class LiveValues {
 public:
  using Time = std::chrono::steady_clock::time_point;
  // Applies a new value before it is stored. Returns "", or why it cannot.
  using Apply = std::function<std::string(double value)>;

  // Declares a setting of this process, and its value at start.
  void Add(LiveSetting setting, double value, bool from_environment, Apply apply);
  bool Has(LiveSetting setting) const { return Of(setting).apply != nullptr; }

  // Changes a setting for `lasting`, then reverts to the value at start. 0: until the process ends
  // or the setting is changed again. Returns "", or why it cannot.
  std::string Set(const LiveCommand& command, std::chrono::milliseconds lasting, uid_t by, Time now,
                  int64_t now_realtime_ns);
  // Reverts settings whose time is over, and returns them.
  std::vector<LiveSetting> Expire(Time now);

  // Returns bit n set if setting n is not at its value at start.
  uint32_t changed() const;
  std::string Value(LiveSetting setting) const;
  // Returns lines "NAME VALUE ORIGIN". ORIGIN is "default", "environment", or "set UID SECONDS":
  // the user, and the Unix time of the end (0: none).
  std::vector<std::string> Lines() const;

 private:
  struct Entry {
    double start = 0, now = 0;
    bool from_environment = false;
    bool is_set = false;
    Time until = Time::max();
    int64_t until_realtime_s = 0;
    uid_t by = 0;
    Apply apply;
  };
  const Entry& Of(LiveSetting setting) const { return entries_[static_cast<int>(setting)]; }
  Entry& Of(LiveSetting setting) { return entries_[static_cast<int>(setting)]; }

  std::array<Entry, kLiveSettings> entries_;
};

}  // namespace nccl_pulse

#endif  // EXPORTER_CONTROL_LIVE_VALUES_H_
