#include "exporter/cli/command.h"

#include <algorithm>
#include <cstddef>
#include <cstdio>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "exporter/base/plain_text.h"
#include "exporter/cli/flags/fleet_flags.h"
#include "exporter/cli/status/status_words.h"
#include "exporter/control/live_values.h"

namespace nccl_pulse {
namespace {

// Returns "" for a default that says nothing: 0, "", off.
std::string DefaultOf(const Flag& flag) {
  if (const auto* const number = std::get_if<int*>(&flag.value)) {
    return **number == 0 ? "" : absl::StrCat(**number);
  }
  if (const auto* const time = std::get_if<absl::Duration*>(&flag.value)) {
    return **time == absl::ZeroDuration() ? "" : absl::FormatDuration(**time);
  }
  const auto* const text = std::get_if<std::string*>(&flag.value);
  return text == nullptr ? "" : **text;
}

std::string FlagLines(const FlagTable& flags) {
  constexpr std::size_t kMostName = 28, kColumns = 110;
  const auto name_of = [](const Flag& flag) {
    return absl::StrCat("  ", flag.name, flag.form.empty() ? "" : "=", flag.form);
  };
  std::size_t indent = 0;
  for (const Flag& each : flags) {
    const std::size_t size = name_of(each).size();
    if (!each.help.empty() && size <= kMostName) indent = std::max(indent, size + 2);
  }
  std::string lines;
  for (const Flag& each : flags) {
    if (each.help.empty()) {  // a heading
      absl::StrAppend(&lines, lines.empty() ? "" : "\n", Wrap(std::string(each.name), 0, kColumns));
      continue;
    }
    const std::string name = name_of(each), standard = DefaultOf(each);
    std::string text(each.help);
    if (!standard.empty() && text.find("(default") == text.npos) {
      absl::StrAppend(&text, " (default ", standard, ")");
    }
    text = Wrap(text, indent, kColumns);
    if (name.size() + 2 > indent) {
      absl::StrAppend(&lines, name, "\n");
    } else {
      text.replace(0, name.size(), name);
    }
    lines += text;
  }
  return lines;
}

constexpr char kConnectHelp[] =
    R"(Flags of `pulse status`, `diagnose`, `watch`, `capture` and `trace`. Default: the endpoints of this host, ports
9410 to 9417.

{flags}

Every duration has a unit: 500ms, 5s, 10m, 1h30m.
)";

// Returns the words that the flag accepts; none if it accepts any text.
std::vector<std::string_view> ValuesOf(std::string_view name, const Command& command) {
  for (const Flag& each : AllFlags(command)) {
    if (each.name == name) return each.Choices();
  }
  return {};
}

std::vector<std::string> Candidates(const std::vector<const Command*>& commands,
                                    const std::vector<std::string>& words) {
  std::vector<std::string> all;
  const bool is_first = words.size() == 1;
  if (is_first || (words.size() == 2 && words.front() == "help")) {
    for (const Command* command : commands) all.emplace_back(command->name);
    if (is_first) all.insert(all.end(), {"help", "--help", "--version"});
    if (!is_first) all.emplace_back(kConnectTopic.name);
    return all;
  }
  const auto found =
      std::find_if(commands.begin(), commands.end(),
                   [&words](const Command* command) { return command->name == words.front(); });
  if (found == commands.end()) return all;
  const Command& command = **found;
  const std::string& last = words.back();
  if (absl::StartsWith(last, "-")) {
    const std::string flag = last.substr(0, last.find('='));
    if (flag != last) {
      for (const std::string_view value : ValuesOf(flag, command)) {
        all.push_back(absl::StrCat(flag, "=", value));
      }
      return all;
    }
    for (const Flag& each : AllFlags(command)) {
      if (each.has_value()) all.push_back(absl::StrCat(each.name, each.form.empty() ? "" : "="));
    }
    all.emplace_back("--help");
    return all;
  }
  for (const std::string_view each : ValuesOf(words[words.size() - 2], command)) {
    all.emplace_back(each);
  }
  if (all.empty() && &command == &kSetCommand) {
    for (int i = 0; i < kLiveSettings; ++i) {
      all.push_back(absl::StrCat(LiveSettingName(static_cast<LiveSetting>(i)), "="));
    }
  }
  return all;
}

}  // namespace

const Command kConnectTopic = {"connect", "", kConnectHelp, ConnectFlags, nullptr};

int Fail(int status, const std::string& text) {
  std::fprintf(stderr, "pulse: %s\n", PlainText(text).c_str());
  return status;
}

FlagTable AllFlags(const Command& command) {
  return Joined({command.flags(), command.connect == nullptr ? FlagTable() : command.connect()});
}

std::string HelpText(const Command& command) {
  return absl::StrReplaceAll(command.help, {{"{flags}\n", FlagLines(command.flags())}});
}

std::vector<std::string> Completions(const std::vector<const Command*>& commands,
                                     const std::vector<std::string>& words) {
  if (words.empty()) return {};
  std::vector<std::string> all = Candidates(commands, words);
  all.erase(std::remove_if(all.begin(), all.end(),
                           [&words](const std::string& each) {
                             return !absl::StartsWith(each, words.back());
                           }),
            all.end());
  return all;
}

}  // namespace nccl_pulse
