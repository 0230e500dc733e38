#include "exporter/diagnosis/facts/environment_differences.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "exporter/diagnosis/jobs.h"

namespace nccl_pulse {
namespace {

constexpr std::size_t kMostSentences = 8, kMostNamed = 4;

// Variables that one process reports. `is_cut`: the process has further variables, after the last
// reported name.
struct Reported {
  std::map<std::string_view, std::string_view> values;
  bool is_cut = false;
};

Reported Parse(const std::string& text) {
  Reported reported;
  for (const std::string_view part : absl::StrSplit(text, ' ', absl::SkipEmpty())) {
    const std::size_t end = part.find('=');
    if (end == part.npos) {
      reported.is_cut = true;
    } else {
      reported.values.emplace(part.substr(0, end), part.substr(end + 1));
    }
  }
  return reported;
}

std::string NameOf(const ProcessSnapshot& process) {
  return process.global_rank.empty() ? absl::StrCat("pid ", process.pid)
                                     : absl::StrCat("global rank ", process.global_rank);
}

using Group = std::vector<const ProcessSnapshot*>;

std::string ValueWords(std::string_view value) {
  return value.empty() ? "not set" : absl::StrCat("\"", value, "\"");
}

std::string Sentence(std::string_view name, const std::map<std::string_view, Group>& by_value) {
  const auto usual = std::max_element(
      by_value.begin(), by_value.end(),
      [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
  std::string text = absl::StrCat(
      name == "NCCL" ? "NCCL's version" : name, " differs: ", ValueWords(usual->first), " in ",
      usual->second.size(), usual->second.size() == 1 ? " process" : " processes");
  for (auto other = by_value.begin(); other != by_value.end(); ++other) {
    if (other == usual) continue;
    absl::StrAppend(&text, "; ", ValueWords(other->first), " in ");
    const Group& group = other->second;
    for (std::size_t i = 0; i < group.size() && i < kMostNamed; ++i) {
      absl::StrAppend(&text, i == 0 ? "" : ", ", NameOf(*group[i]));
    }
    if (group.size() > kMostNamed) {
      absl::StrAppend(&text, " and ", group.size() - kMostNamed, " more");
    }
  }
  return text + ".";
}

void Compare(const Group& group, std::vector<std::string>* sentences) {
  std::vector<std::pair<const ProcessSnapshot*, Reported>> all;
  std::set<std::string_view> names;
  for (const ProcessSnapshot* process : group) {
    if (process->nccl_environment.empty()) continue;
    all.emplace_back(process, Parse(process->nccl_environment));
    for (const auto& [name, value] : all.back().second.values) names.insert(name);
  }
  for (const std::string_view name : names) {
    std::map<std::string_view, Group> by_value;
    std::size_t known = 0;
    for (const auto& [process, reported] : all) {
      const auto found = reported.values.find(name);
      const bool is_there = found != reported.values.end();
      // NCCL's version is always reported if known.
      if (!is_there && (reported.is_cut || name == "NCCL")) continue;
      ++known;
      by_value[is_there ? found->second : std::string_view()].push_back(process);
    }
    const bool is_each_its_own = by_value.size() == known && known > 2;
    if (by_value.size() > 1 && !is_each_its_own) sentences->push_back(Sentence(name, by_value));
  }
}

}  // namespace

std::vector<std::string> EnvironmentDifferences(const SnapshotSet& set) {
  const std::vector<ProcessSnapshot>& processes = set.processes;
  const bool is_equal =
      std::all_of(processes.begin(), processes.end(), [&processes](const auto& process) {
        return process.nccl_environment == processes.front().nccl_environment;
      });
  std::vector<std::string> sentences;
  if (is_equal) return sentences;
  Jobs jobs(set);
  std::map<std::size_t, Group> groups;
  for (const ProcessSnapshot& process : processes) {
    groups[jobs.OfProcess(&process)].push_back(&process);
  }
  for (const auto& [job, group] : groups) Compare(group, &sentences);
  if (sentences.size() > kMostSentences) {
    const std::size_t more = sentences.size() - kMostSentences;
    sentences.resize(kMostSentences);
    sentences.push_back(absl::StrCat(more, " more variables differ between processes."));
  }
  return sentences;
}

}  // namespace nccl_pulse
