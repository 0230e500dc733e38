#include "plugin/runtime/settings.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "exporter/control/live_values.h"
#include "exporter/exposition/catalogue.h"
#include "exporter/node/listener.h"
#include "metrics/segment_layout.h"

namespace nccl_pulse {
namespace {

constexpr std::string_view kPrefix = "NCCL_PULSE_";
constexpr uint64_t kMinSeries = 16;
constexpr uint64_t kMaxSeries =
    30000;  // each takes up to two chunks, and chunks have 16-bit numbers
constexpr std::size_t kMaxNodeName = 253;  // as long as a DNS name can be
constexpr std::size_t kMaxLabelValueBytes = 128;

// A setting. `parse` returns false, without effect, for a bad value. `used` returns the value in
// use, for the warning.
struct Setting {
  const char* name;
  const char* accepted;  // for the warning
  bool (*parse)(const std::string& value, Settings* settings);
  std::string (*used)(const Settings& settings);
};

template <typename T>
bool Choose(const std::string& value, std::initializer_list<std::pair<const char*, T>> choices,
            T* out) {
  for (const auto& [name, choice] : choices) {
    if (absl::EqualsIgnoreCase(value, name)) {
      *out = choice;
      return true;
    }
  }
  return false;
}

bool ParseTiming(const std::string& value, Settings* settings) {
  return Choose(
      value,
      {{"auto", TimingMode::kAuto}, {"kernel", TimingMode::kKernel}, {"off", TimingMode::kOff}},
      &settings->timing);
}

bool ParseListen(const std::string& value, Settings* settings) {
  ListenAddress address;
  std::string error;
  const bool is_off = IsOff(value);
  const bool is_good = is_off || ParseListenAddress(value, &address, &error);
  settings->listen = is_off ? "off" : is_good ? value : SafeAddress(value);
  return is_good;
}

bool ParseFileSdDirectory(const std::string& value, Settings* settings) {
  if (value[0] != '/') return false;
  settings->file_sd_directory = value;
  return true;
}

// Accepts a DNS name of at most 253 characters, which is how Kubernetes names nodes, or another
// name that a host may have.
bool ParseNodeName(const std::string& value, Settings* settings) {
  const auto allowed = [](char c) {
    return absl::ascii_isalnum(c) || c == '-' || c == '.' || c == '_';
  };
  if (value.size() > kMaxNodeName || !std::all_of(value.begin(), value.end(), allowed)) {
    return false;
  }
  settings->node_name = value;
  return true;
}

bool ParseSeriesLimit(const std::string& value, Settings* settings) {
  uint64_t limit = 0;
  if (!absl::SimpleAtoi(value, &limit) || limit < kMinSeries || limit > kMaxSeries) return false;
  settings->series_limit = limit;
  return true;
}

// Parses the number of last calls to keep, rounded up to the size of a ring: 64, 128, 256, ...
bool ParseLastCalls(const std::string& value, Settings* settings) {
  uint32_t wanted = 0;
  if (!absl::SimpleAtoi(value, &wanted) || wanted > kMostLastCalls) return false;
  uint32_t kept = wanted == 0 ? 0 : kLastCallsPerChunk;
  while (kept < wanted) kept *= 2;
  settings->last_calls = kept;
  return true;
}

// Parses a setting that `pulse set` can also change while the job runs, by the same rules.
template <LiveSetting setting, typename T>
bool ParseLive(const std::string& value, T* out, Settings* settings) {
  double number = 0;
  if (!ParseLiveValue(setting, value, &number)) return false;
  *out = static_cast<T>(number);
  settings->from_environment |= uint32_t{1} << static_cast<int>(setting);
  return true;
}

bool ParseTimedLaunches(const std::string& value, Settings* settings) {
  return ParseLive<LiveSetting::kTimedLaunches>(value, &settings->timed_launches_per_second,
                                                settings);
}

bool ParseHangSeconds(const std::string& value, Settings* settings) {
  return ParseLive<LiveSetting::kHangSeconds>(value, &settings->hang_seconds, settings);
}

// True if Prometheus accepts the label name. Names that start with two underscores are reserved.
bool IsLabelName(std::string_view name) {
  if (name.empty() || absl::StartsWith(name, "__") || absl::ascii_isdigit(name[0])) return false;
  return std::all_of(name.begin(), name.end(),
                     [](char c) { return absl::ascii_isalnum(c) || c == '_'; });
}

bool ParseLabels(const std::string& value, Settings* settings) {
  // The segment has no room for more.
  if (value.size() >= kStaticLabelsBytes) return false;
  std::map<std::string, std::string> labels;
  std::string unused;
  for (std::string_view part : absl::StrSplit(value, ',', absl::SkipWhitespace())) {
    const std::pair<std::string_view, std::string_view> label =
        absl::StrSplit(part, absl::MaxSplits('=', 1));
    const std::string_view name = absl::StripAsciiWhitespace(label.first);
    std::string text(absl::StripAsciiWhitespace(label.second));
    const bool printable = std::all_of(text.begin(), text.end(), absl::ascii_isprint);
    if (!absl::StrContains(part, '=') || !IsLabelName(name) || !printable || labels.size() >= 16) {
      return false;
    }
    const auto leave_out = [&](std::string_view why) {
      absl::StrAppend(&unused, unused.empty() ? "" : "; ", "\"", part, "\" ", why);
    };
    if (IsReservedLabel(name)) {
      leave_out("is left out: metrics have a label of this name");
      continue;
    }
    if (text.empty()) {
      leave_out("has no value, and is left out");
      continue;
    }
    if (name == "hang_alert") {  // alerts and `pulse watch` know this label
      absl::AsciiStrToLower(&text);
      if (text != "off") leave_out("has no effect: only hang_alert=off silences alerts");
    }
    const auto [label_of_name, is_new] = labels.try_emplace(std::string(name));
    if (!is_new) leave_out("repeats a label: this value is used, not the earlier one");
    if (text.size() > kMaxLabelValueBytes) {
      leave_out(absl::StrCat("is cut to ", kMaxLabelValueBytes, " bytes"));
    }
    label_of_name->second = text.substr(0, kMaxLabelValueBytes);
  }
  settings->labels = std::move(labels);
  settings->label_problems = std::move(unused);
  return true;
}

bool ParseHistogramShapes(const std::string& value, Settings* settings) {
  return ParseHistograms(value, &settings->exposition);
}

bool ParseDropFamilies(const std::string& value, Settings* settings) {
  return ParseDroppedFamilies(value, &settings->exposition, &settings->unknown_families);
}

bool ParseLogLevel(const std::string& value, Settings* settings) {
  int level = 0;
  if (!ParseLive<LiveSetting::kLogLevel>(value, &level, settings)) return false;
  settings->log_level = static_cast<LogVerbosity>(level);
  return true;
}

bool ParseClock(const std::string& value, Settings* settings) {
  return Choose(value, {{"auto", ClockSource::kAuto}, {"monotonic", ClockSource::kMonotonic}},
                &settings->clock);
}

bool ParseNetworkWindow(const std::string& value, Settings* settings) {
  if (!ParseLive<LiveSetting::kNetworkWindow>(value, &settings->network_window_percent, settings)) {
    return false;
  }
  settings->network_window_was_set = settings->network_window_percent > 0;
  return true;
}

bool ParseGraphs(const std::string& value, Settings* settings) {
  return Choose(value, {{"auto", true}, {"off", false}}, &settings->follow_graphs);
}

bool ParseWorkCounters(const std::string& value, Settings* settings) {
  return Choose(value, {{"on", true}, {"off", false}}, &settings->follow_work);
}

bool ParseUserTags(const std::string& value, Settings* settings) {
  int tags = 0;
  const bool off = absl::EqualsIgnoreCase(value, "off");
  if (!off && (!absl::SimpleAtoi(value, &tags) || tags < 1 || tags > kMaxUserTags)) return false;
  settings->user_tags = tags;
  return true;
}

constexpr Setting kSettings[] = {
    {"NCCL_PULSE_TIMING", "auto, kernel or off", ParseTiming,
     [](const Settings& s) { return std::string(TimingModeName(s.timing)); }},
    {"NCCL_PULSE_LISTEN",
     "host, [host]:port with a numeric host or localhost and a port from 0 to 65535, unix:/path, "
     "or "
     "off",
     ParseListen, [](const Settings& s) { return s.listen; }},
    {"NCCL_PULSE_FILE_SD_DIR", "an absolute path", ParseFileSdDirectory,
     [](const Settings&) { return std::string("none"); }},
    {"NCCL_PULSE_NODE_NAME", "a name of up to 253 letters, digits, dots, hyphens and underscores",
     ParseNodeName, [](const Settings&) { return std::string("the host's"); }},
    {"NCCL_PULSE_SERIES_LIMIT", "a number from 16 to 30000", ParseSeriesLimit,
     [](const Settings& s) { return absl::StrCat(s.series_limit); }},
    {"NCCL_PULSE_TIMED_LAUNCHES_PER_SECOND", LiveRange(LiveSetting::kTimedLaunches),
     ParseTimedLaunches,
     [](const Settings& s) {
       return SpellLiveValue(LiveSetting::kTimedLaunches, s.timed_launches_per_second);
     }},
    {"NCCL_PULSE_LAST_CALLS", "a number from 0 to 512", ParseLastCalls,
     [](const Settings& s) { return absl::StrCat(s.last_calls); }},
    {"NCCL_PULSE_LABELS",
     "up to 16 labels as name=value,name=value of less than 1024 bytes together", ParseLabels,
     [](const Settings&) { return std::string("no labels"); }},
    {"NCCL_PULSE_HISTOGRAMS",
     "both, classic or native, or any of them for one histogram as family=native or network=native",
     ParseHistogramShapes, [](const Settings&) { return std::string(kDefaultHistograms); }},
    {"NCCL_PULSE_DROP_FAMILIES", "a list of metric families that exist", ParseDropFamilies,
     [](const Settings& s) { return absl::StrCat("it without ", s.unknown_families); }},
    {"NCCL_PULSE_HANG_SECONDS", LiveRange(LiveSetting::kHangSeconds), ParseHangSeconds,
     [](const Settings& s) { return absl::StrCat(s.hang_seconds); }},
    {"NCCL_PULSE_LOG_LEVEL", LiveRange(LiveSetting::kLogLevel), ParseLogLevel,
     [](const Settings&) { return std::string("warn"); }},
    {"NCCL_PULSE_NETWORK_WINDOW", LiveRange(LiveSetting::kNetworkWindow), ParseNetworkWindow,
     [](const Settings& s) { return absl::StrCat(s.network_window_percent); }},
    {"NCCL_PULSE_GRAPHS", "auto or off", ParseGraphs,
     [](const Settings&) { return std::string("auto"); }},
    {"NCCL_PULSE_WORK_COUNTERS", "on or off", ParseWorkCounters,
     [](const Settings&) { return std::string("on"); }},
    {"NCCL_PULSE_USER_TAGS", "a number from 1 to 64, or off", ParseUserTags,
     [](const Settings&) { return std::string("off"); }},
    // Read when the library is loaded (plugin/next/chain.cc), which also reports errors.
    {"NCCL_PULSE_NEXT_PLUGIN", "a library", [](const std::string&, Settings*) { return true; },
     [](const Settings&) { return std::string("none"); }},
    {"NCCL_PULSE_CLOCK", "auto or monotonic", ParseClock,
     [](const Settings&) { return std::string("auto"); }},
};

}  // namespace

const char* TimingModeName(TimingMode mode) {
  switch (mode) {
    case TimingMode::kAuto:
      return "auto";
    case TimingMode::kKernel:
      return "kernel";
    case TimingMode::kOff:
      return "off";
  }
  return "unknown";
}

Settings ReadSettings(char* const* environment, std::vector<std::string>* warnings) {
  Settings settings;
  for (char* const* variable = environment; variable != nullptr && *variable != nullptr;
       ++variable) {
    const std::string_view text = *variable;
    if (!absl::StartsWith(text, kPrefix)) continue;
    const std::pair<std::string, std::string> parts = absl::StrSplit(text, absl::MaxSplits('=', 1));
    const std::string value(absl::StripAsciiWhitespace(parts.second));
    const Setting* setting =
        std::find_if(std::begin(kSettings), std::end(kSettings),
                     [&](const Setting& candidate) { return parts.first == candidate.name; });
    if (setting == std::end(kSettings)) {
      std::string known;
      for (const Setting& each : kSettings)
        absl::StrAppend(&known, known.empty() ? "" : ", ", each.name);
      warnings->push_back(absl::StrCat("the variable ", parts.first.substr(0, 64),
                                       " is not a setting and is ignored; settings are ", known));
    } else if (!value.empty() && !setting->parse(value, &settings)) {
      warnings->push_back(absl::StrCat(setting->name, "=\"", value.substr(0, 64), "\" is not ",
                                       setting->accepted, "; using ", setting->used(settings)));
    }
  }
  if (!settings.label_problems.empty()) {
    warnings->push_back(absl::StrCat("NCCL_PULSE_LABELS: ", settings.label_problems));
  }
  return settings;
}

}  // namespace nccl_pulse
