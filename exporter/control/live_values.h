// The settings of a process that can be changed while it runs: their values, where each comes from,
// and when it goes back by itself.
//
// Names and values are those of the variables NCCL_PULSE_*, without that prefix. A value is a
// number: of LOG_LEVEL 0 (off), 1 (warn) or 2 (info), of NETWORK_WINDOW 0 for off, of
// TIMED_LAUNCHES_PER_SECOND -16 for one-in-16.
//
// Thread: one, which also gets the calls of `apply`: in a job the background thread, in an agent
// its main thread. The functions that are no members: any. Cost: allocates. Never in a callback.
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

// The longest time after which a setting goes back by itself.
inline constexpr std::chrono::hours kMaxLasting{24 * 7};

// By its name, with NCCL_PULSE_ or without. False when it is none of them.
bool FindLiveSetting(std::string_view name, LiveSetting* setting);
// False for a value that the setting does not have.
bool ParseLiveValue(LiveSetting setting, std::string_view text, double* value);
std::string SpellLiveValue(LiveSetting setting, double value);
// "a number from 1 to 86400".
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
// All of them with their ranges, for a person.
std::string DescribeLiveSettings();

// "NAME=VALUE", as a command has it. "NAME=default": what the process started with.
struct LiveCommand {
  LiveSetting setting{};
  bool is_default = false;
  double value = 0;
};
// False, with what can be set in `error`.
bool ParseLiveCommand(std::string_view text, LiveCommand* command, std::string* error);

class LiveValues {
 public:
  using Time = std::chrono::steady_clock::time_point;
  // "" when it is done, or why it cannot be. Called with the new value before that is kept.
  using Apply = std::function<std::string(double value)>;

  // Declares that this process has the setting, and what it started with.
  void Add(LiveSetting setting, double value, bool from_environment, Apply apply);
  bool Has(LiveSetting setting) const { return Of(setting).apply != nullptr; }

  // From now on, for `lasting` (0: until the process ends or it is set again). What it goes back to
  // is what the process started with. "" when it is done, or why it cannot be.
  std::string Set(const LiveCommand& command, std::chrono::milliseconds lasting, uid_t by, Time now,
                  int64_t now_realtime_ns);
  // Takes back what has lasted long enough. Returns which.
  std::vector<LiveSetting> Expire(Time now);

  // Bit n: setting n is not what the process started with.
  uint32_t changed() const;
  std::string Value(LiveSetting setting) const;
  // "NAME VALUE ORIGIN", where ORIGIN is "default", "environment", or "set UID SECONDS": by
  // whom, and in Unix time until when (0: for good).
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
