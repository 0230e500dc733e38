#include "exporter/cli/flag_check.h"

#include <algorithm>
#include <cstddef>

#include "absl/flags/commandlineflag.h"
#include "absl/flags/reflection.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"

namespace nccl_pulse {
namespace {

// A typing mistake or two.
constexpr std::size_t kMostEdits = 2;

bool IsOfName(char c) { return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-'; }

// How many letters must be changed, inserted or left out to make one of the other.
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

bool IsNumber(std::string_view text) {
  double number = 0;
  return absl::SimpleAtod(text, &number) && number != 0;
}

// "5" and "5s". From 1024 on a number is the port of an endpoint.
bool LooksLikeTime(std::string_view text) {
  constexpr int kFirstPort = 1024;
  double number = 0;
  if (absl::SimpleAtod(text, &number)) return number > 0 && number < kFirstPort;
  absl::Duration duration;
  return absl::ParseDuration(text, &duration);
}

// What is wrong with `value` of the flag `name`. `is_sure`: behind an equals sign; else it may be an
// argument of its own.
std::string CheckValue(const std::string& name, std::string_view value, bool is_sure) {
  const absl::CommandLineFlag* flag =
      absl::FindCommandLineFlag(absl::StrReplaceAll(name.substr(2), {{"-", "_"}}));
  if (flag == nullptr) return "";
  if (flag->IsOfType<absl::Duration>() && IsNumber(value)) {
    return absl::StrCat(name, "=", value, " has no unit: write ", name, "=", value, "s");
  }
  double number = 0;
  absl::Duration duration;
  if (flag->IsOfType<double>() && !absl::SimpleAtod(value, &number) &&
      absl::ParseDuration(value, &duration)) {
    return absl::StrCat(name, "=", value, ": it takes a number of seconds: write ", name, "=",
                        absl::ToDoubleSeconds(duration));
  }
  bool truth = false;
  if (name == "--watch" && LooksLikeTime(value) && !(is_sure && absl::SimpleAtob(value, &truth))) {
    return absl::StrCat("--watch takes no time: write --watch --interval=", value,
                        IsNumber(value) ? "s" : "");
  }
  return "";
}

}  // namespace

std::vector<std::string> FlagsIn(std::string_view help) {
  std::vector<std::string> flags;
  for (std::size_t at = help.find("--"); at != help.npos; at = help.find("--", at)) {
    std::size_t end = at;
    while (end < help.size() && IsOfName(help[end])) ++end;
    std::string flag(help.substr(at, end - at));
    if (flag.size() > 2 && std::find(flags.begin(), flags.end(), flag) == flags.end()) {
      flags.push_back(std::move(flag));
    }
    at = end;
  }
  return flags;
}

std::string Nearest(std::string_view written, const std::vector<std::string>& candidates) {
  std::string nearest;
  std::size_t least = kMostEdits + 1;
  for (const std::string& candidate : candidates) {
    const std::size_t edits = Edits(written, candidate);
    if (edits >= least) continue;
    least = edits;
    nearest = candidate;
  }
  return nearest;
}

std::string CheckFlag(std::string_view argument, std::string_view next, std::string_view command,
                      std::string_view help) {
  if (argument.size() < 2 || argument[0] != '-') return "";
  std::string_view rest = argument;
  absl::ConsumePrefix(&rest, "-");
  absl::ConsumePrefix(&rest, "-");
  const std::size_t equals = rest.find('=');
  std::string name = absl::StrCat("--", absl::StrReplaceAll(rest.substr(0, equals), {{"_", "-"}}));
  const std::vector<std::string> flags = FlagsIn(help);
  const auto is_known = [&flags](const std::string& flag) {
    return std::find(flags.begin(), flags.end(), flag) != flags.end();
  };
  // --nowatch means --watch=false.
  if (!is_known(name) && absl::StartsWith(name, "--no") &&
      is_known(absl::StrCat("--", name.substr(4)))) {
    return "";
  }
  if (!is_known(name)) {
    const std::string nearest = Nearest(name, flags);
    return absl::StrCat(name, " is no flag of `pulse ", command, "`",
                        nearest.empty() ? "" : absl::StrCat("; did you mean ", nearest, "?"));
  }
  const bool has_value = equals != rest.npos;
  return CheckValue(name, has_value ? rest.substr(equals + 1) : next, has_value);
}

}  // namespace nccl_pulse
