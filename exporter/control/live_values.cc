#include "exporter/control/live_values.h"

#include <cmath>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace nccl_pulse {
namespace {

constexpr std::string_view kPrefix = "NCCL_PULSE_";
constexpr std::string_view kLevels[] = {"off", "warn", "info"};
// Every timed launch delays its GPU. Must fit an int when multiplied by 64 GPUs. Pairs of events
// allow far fewer.
constexpr double kMaxTimedLaunches = 1000000;
constexpr std::string_view kOneIn = "one-in-";
constexpr int kMaxOneIn = 1 << kMostSamplingExponent;
constexpr double kMaxHangSeconds = 86400;
constexpr double kMinWindowPercent = 0.01;

bool ParseWhole(std::string_view text, double least, double most, double* value) {
  int number = 0;
  if (!absl::SimpleAtoi(text, &number) || number < least || number > most) return false;
  *value = number;
  return true;
}

// Parses "one-in-10" as one in 16, the next power of two: -16.
bool ParseOneIn(std::string_view text, double* value) {
  int number = 0;
  if (!absl::ConsumePrefix(&text, kOneIn) || !absl::SimpleAtoi(text, &number) || number < 1 ||
      number > kMaxOneIn) {
    return false;
  }
  int power = 1;
  while (power < number) power *= 2;
  *value = -power;
  return true;
}

}  // namespace

bool FindLiveSetting(std::string_view name, LiveSetting* setting) {
  if (absl::StartsWithIgnoreCase(name, kPrefix)) name.remove_prefix(kPrefix.size());
  for (int i = 0; i < kLiveSettings; ++i) {
    *setting = static_cast<LiveSetting>(i);
    if (absl::EqualsIgnoreCase(name, LiveSettingName(*setting))) return true;
  }
  return false;
}

bool ParseLiveValue(LiveSetting setting, std::string_view text, double* value) {
  switch (setting) {
    case LiveSetting::kTimedLaunches:
      if (ParseOneIn(text, value)) return true;
      return ParseWhole(text, 1, kMaxTimedLaunches, value);
    case LiveSetting::kHangSeconds:
      return ParseWhole(text, 1, kMaxHangSeconds, value);
    case LiveSetting::kNetworkWindow: {
      double percent = 0;
      if (absl::EqualsIgnoreCase(text, "off")) {
        *value = 0;
        return true;
      }
      // In this form, because NaN compares false with everything.
      const bool in_range =
          absl::SimpleAtod(text, &percent) && percent >= kMinWindowPercent && percent <= 100;
      if (in_range) *value = percent;
      return in_range;
    }
    case LiveSetting::kLogLevel:
      for (int level = 0; level < 3; ++level) {
        if (!absl::EqualsIgnoreCase(text, kLevels[level])) continue;
        *value = level;
        return true;
      }
      return false;
  }
  return false;
}

std::string SpellLiveValue(LiveSetting setting, double value) {
  if (setting == LiveSetting::kLogLevel) {
    const int level = static_cast<int>(value);
    return std::string(kLevels[level < 0 || level > 2 ? 1 : level]);
  }
  if (setting == LiveSetting::kNetworkWindow) return value <= 0 ? "off" : absl::StrCat(value);
  if (setting == LiveSetting::kTimedLaunches && value < 0) {
    return absl::StrCat(kOneIn, std::llround(-value));
  }
  // An agent's --hang-after has milliseconds.
  if (setting == LiveSetting::kHangSeconds) return absl::StrCat(value);
  return absl::StrCat(std::llround(value));
}

bool ParseLiveCommand(std::string_view text, LiveCommand* command, std::string* error) {
  constexpr std::size_t kShown = 64;
  const std::size_t sign = text.find('=');
  const std::string_view name = text.substr(0, sign);
  if (sign == text.npos || !FindLiveSetting(name, &command->setting)) {
    *error = absl::StrCat(
        "\"", name.substr(0, kShown),
        sign == text.npos ? "\" is no NAME=VALUE" : "\" cannot be set while a job runs",
        "; `pulse help set` lists the names");
    return false;
  }
  const std::string_view value = absl::StripAsciiWhitespace(text.substr(sign + 1));
  command->is_default = absl::EqualsIgnoreCase(value, "default");
  if (command->is_default || ParseLiveValue(command->setting, value, &command->value)) return true;
  *error = absl::StrCat(LiveSettingName(command->setting), "=\"", value.substr(0, kShown),
                        "\": must be ", LiveRange(command->setting), ", or default");
  return false;
}

void LiveValues::Add(LiveSetting setting, double value, bool from_environment, Apply apply) {
  Entry& entry = Of(setting);
  entry.start = entry.now = value;
  entry.from_environment = from_environment;
  entry.apply = std::move(apply);
}

std::string LiveValues::Set(const LiveCommand& command, std::chrono::milliseconds lasting, uid_t by,
                            Time now, int64_t now_realtime_ns) {
  Entry& entry = Of(command.setting);
  if (entry.apply == nullptr) return "this process has no such setting";
  if (lasting < std::chrono::milliseconds(0) || lasting > kMaxLasting) {
    return "the time is not between 0 and 7 days";
  }
  const double value = command.is_default ? entry.start : command.value;
  std::string problem = entry.apply(value);
  if (!problem.empty()) return problem;
  entry.now = value;
  entry.is_set = !command.is_default;
  entry.by = by;
  const bool ends = entry.is_set && lasting.count() > 0;
  entry.until = ends ? now + lasting : Time::max();
  entry.until_realtime_s = ends ? now_realtime_ns / 1000000000 + (lasting.count() + 999) / 1000 : 0;
  return "";
}

std::vector<LiveSetting> LiveValues::Expire(Time now) {
  std::vector<LiveSetting> expired;
  for (int i = 0; i < kLiveSettings; ++i) {
    const auto setting = static_cast<LiveSetting>(i);
    Entry& entry = Of(setting);
    if (!entry.is_set || entry.until > now) continue;
    // Cannot fail: the value at start was accepted at start.
    entry.apply(entry.start);
    entry.now = entry.start;
    entry.is_set = false;
    entry.until = Time::max();
    entry.until_realtime_s = 0;
    expired.push_back(setting);
  }
  return expired;
}

uint32_t LiveValues::changed() const {
  uint32_t bits = 0;
  for (int i = 0; i < kLiveSettings; ++i) {
    if (entries_[i].is_set) bits |= uint32_t{1} << i;
  }
  return bits;
}

std::string LiveValues::Value(LiveSetting setting) const {
  return SpellLiveValue(setting, Of(setting).now);
}

std::vector<std::string> LiveValues::Lines() const {
  std::vector<std::string> lines;
  for (int i = 0; i < kLiveSettings; ++i) {
    const auto setting = static_cast<LiveSetting>(i);
    const Entry& entry = Of(setting);
    if (entry.apply == nullptr) continue;
    const std::string origin = entry.is_set
                                   ? absl::StrCat("set ", entry.by, " ", entry.until_realtime_s)
                               : entry.from_environment ? "environment"
                                                        : "default";
    lines.push_back(absl::StrCat(LiveSettingName(setting), " ", Value(setting), " ", origin));
  }
  return lines;
}

}  // namespace nccl_pulse
