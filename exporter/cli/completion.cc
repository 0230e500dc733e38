#include "exporter/cli/completion.h"

#include <algorithm>
#include <string_view>
#include <variant>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "exporter/cli/flags/flags.h"
#include "exporter/control/live_values.h"
#include "metrics/kinds.h"

namespace nccl_pulse {
namespace {

// Returns the words that the flag accepts; none if it accepts any text.
std::vector<std::string> ValuesOf(std::string_view name, const Command& command) {
  for (const Flag& each : command.flags()) {
    if (each.name == name) return absl::StrSplit(each.choices, '|', absl::SkipEmpty());
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
      for (const std::string& value : ValuesOf(flag, command)) {
        all.push_back(absl::StrCat(flag, "=", value));
      }
      return all;
    }
    for (const Flag& each : command.flags()) {
      all.push_back(absl::StrCat(each.name, std::holds_alternative<bool*>(each.value) ? "" : "="));
    }
    all.emplace_back("--help");
    return all;
  }
  all = ValuesOf(words[words.size() - 2], command);
  if (all.empty() && &command == &kSetCommand) {
    for (int i = 0; i < kLiveSettings; ++i) {
      all.push_back(absl::StrCat(LiveSettingName(static_cast<LiveSetting>(i)), "="));
    }
  }
  return all;
}

}  // namespace

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
