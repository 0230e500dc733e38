#include "exporter/cli/flags/flags.h"

#include <algorithm>
#include <cstddef>
#include <iterator>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace nccl_pulse {
namespace {

// A suggestion may differ from the word typed by this many edits, or lack its end: --job, --job-id.
constexpr std::size_t kMostEdits = 2;
constexpr std::size_t kLeastCommon = 4;
// Names of a length of time: each is suggested for the others.
constexpr std::string_view kTimes[] = {"--duration", "--for", "--time-limit", "--interval",
                                       "--seconds"};

// Returns how many letters to change, insert or delete to turn one word into the other.
std::size_t Edits(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t above = row[j];
      row[j] = std::min({above + 1, row[j - 1] + 1, diagonal + (a[i - 1] == b[j - 1] ? 0 : 1)});
      diagonal = above;
    }
  }
  return row[b.size()];
}

// True for "5" and "5s". A number from 1024 on is an endpoint's port.
bool LooksLikeTime(std::string_view text) {
  constexpr int kFirstPort = 1024;
  double number = 0;
  if (absl::SimpleAtod(text, &number)) return number > 0 && number < kFirstPort;
  absl::Duration duration;
  return absl::ParseDuration(text, &duration);
}

// Set parses `text` into `value`. Returns "", or an error to follow "--name=TEXT".

std::string Set(std::string_view text, bool* value) {
  return absl::SimpleAtob(text, value) ? "" : ": it takes no value, or true or false";
}

std::string Set(std::string_view text, int* value) {
  return absl::SimpleAtoi(text, value) ? "" : ": not a whole number";
}

std::string Set(std::string_view text, absl::Duration* value) {
  if (absl::ParseDuration(text, value)) return "";
  double number = 0;
  if (!absl::SimpleAtod(text, &number)) return ": not a duration such as 5s or 500ms";
  return absl::StrCat(" has no unit: write NAME=", text, "s");
}

std::string Set(std::string_view text, std::string* value) {
  *value = std::string(text);
  return "";
}

std::string Set(std::string_view text, std::vector<std::string>* value) {
  value->emplace_back(text);
  return "";
}

template <typename T>
std::string Set(std::string_view text, std::optional<T>* value) {
  return Set(text, &value->emplace());
}

// Like Set, for a flag whose value has been set.
std::string WhyOutOfRange(const Flag& flag) {
  if (flag.range.empty()) return "";
  const std::vector<std::string_view> limits = absl::StrSplit(flag.range, " to ");
  const bool is_within = std::visit(
      [&limits](auto* value) {
        auto least = *value, most = *value;
        Set(limits[0], &least);
        Set(limits[1], &most);
        return least <= *value && *value <= most;
      },
      flag.value);
  return is_within ? "" : absl::StrCat(" is not between ", limits[0], " and ", limits[1]);
}

// Like Set, for a flag with fixed choices.
std::string WhyNoChoice(std::string_view text, const std::vector<std::string_view>& words) {
  if (words.empty() || std::find(words.begin(), words.end(), text) != words.end()) return "";
  std::string list(words.front());
  for (std::size_t i = 1; i < words.size(); ++i) {
    absl::StrAppend(&list, i + 1 < words.size() ? ", " : " or ", words[i]);
  }
  return absl::StrCat(": must be ", list);
}

// Returns the flag that an unknown name probably means, or "".
std::string Suggestion(std::string_view name, const FlagTable& flags) {
  std::vector<std::string> names;
  for (const Flag& each : flags) names.emplace_back(each.name);
  if (std::find(std::begin(kTimes), std::end(kTimes), name) != std::end(kTimes)) {
    for (const std::string_view each : kTimes) {
      if (std::find(names.begin(), names.end(), each) != names.end()) return std::string(each);
    }
  }
  return Nearest(name, names);
}

}  // namespace

std::vector<std::string_view> Flag::Choices() const {
  if (form.find('|') == form.npos) return {};
  return absl::StrSplit(form, '|');
}

FlagTable Joined(std::initializer_list<FlagTable> tables) {
  FlagTable joined;
  for (const FlagTable& each : tables) joined.insert(joined.end(), each.begin(), each.end());
  return joined;
}

std::string Nearest(std::string_view written, const std::vector<std::string>& candidates) {
  std::string nearest;
  std::size_t least = kMostEdits + 1;
  for (const std::string& candidate : candidates) {
    const bool is_part =
        std::min(written.size(), candidate.size()) >= kLeastCommon &&
        (absl::StartsWith(candidate, written) || absl::StartsWith(written, candidate));
    const std::size_t edits = is_part ? 1 : Edits(written, candidate);
    if (edits >= least) continue;
    least = edits;
    nearest = candidate;
  }
  return nearest;
}

std::string ReadFlags(std::string_view command, const FlagTable& flags,
                      const std::vector<std::string_view>& given,
                      std::vector<std::string>* arguments) {
  const auto find = [&flags](std::string_view name) {
    return std::find_if(flags.begin(), flags.end(),
                        [name](const Flag& flag) { return flag.name == name; });
  };
  for (std::size_t i = 0; i < given.size(); ++i) {
    std::string_view rest = given[i];
    if (rest == "--") {
      arguments->insert(arguments->end(), given.begin() + static_cast<std::ptrdiff_t>(i) + 1,
                        given.end());
      return "";
    }
    if (rest.size() < 2 || rest[0] != '-') {
      arguments->emplace_back(rest);
      continue;
    }
    rest.remove_prefix(1);
    absl::ConsumePrefix(&rest, "-");
    const std::size_t equals = rest.find('=');
    const std::string name =
        absl::StrCat("--", absl::StrReplaceAll(rest.substr(0, equals), {{"_", "-"}}));
    const auto flag = find(name);
    if (flag == flags.end()) {
      const std::string nearest = Suggestion(name, flags);
      const bool is_host = absl::StartsWith(name, "--host") || absl::StartsWith(name, "--node");
      const bool has_addresses = is_host && find("--endpoint") != flags.end();
      return absl::StrCat(given[i].substr(0, given[i].find('=')), " is not a flag of `", command,
                          "`",
                          has_addresses     ? "; write the hosts behind the command, without a flag"
                          : nearest.empty() ? ""
                                            : absl::StrCat("; did you mean ", nearest, "?"));
    }
    const bool has_value = equals != rest.npos;
    const bool is_switch = std::holds_alternative<bool*>(flag->value);
    const bool has_next = i + 1 < given.size();
    // A script with Windows line ends leaves a carriage return.
    std::string_view text = absl::StripAsciiWhitespace(has_value  ? rest.substr(equals + 1)
                                                       : has_next ? given[i + 1]
                                                                  : "");
    // Common forms: --watch=5 and --watch 5s.
    bool truth = false;
    if (is_switch && name == "--watch" && LooksLikeTime(text) &&
        !(has_value && absl::SimpleAtob(text, &truth))) {
      double number = 0;
      return absl::StrCat(name, " takes no time: write ", name, " --interval=", text,
                          absl::SimpleAtod(text, &number) ? "s" : "");
    }
    if (is_switch && !has_value) text = "true";
    if (!is_switch && !has_value) {
      if (!has_next) return absl::StrCat(name, " needs a value");
      ++i;
    }
    if (name == "--endpoint" && text.empty()) {
      return "--endpoint= has no address: write --endpoint=HOST:PORT, or leave the flag out";
    }
    std::string problem = std::visit([text](auto* value) { return Set(text, value); }, flag->value);
    if (problem.empty()) problem = WhyNoChoice(text, flag->Choices());
    if (problem.empty()) problem = WhyOutOfRange(*flag);
    if (problem.empty()) continue;
    return absl::StrCat(name, "=", text, absl::StrReplaceAll(problem, {{"NAME", name}}));
  }
  return "";
}

}  // namespace nccl_pulse
