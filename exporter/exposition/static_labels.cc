#include "exporter/exposition/static_labels.h"

#include <algorithm>

#include "exporter/exposition/catalogue.h"
#include "exporter/exposition/page_share.h"

namespace nccl_pulse {
namespace {

bool IsLabelName(std::string_view name) {
  const auto is_letter = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  };
  if (name.empty() || !is_letter(name[0]) || name.substr(0, 2) == "__") return false;
  return std::all_of(name.begin(), name.end(),
                     [&](char c) { return is_letter(c) || (c >= '0' && c <= '9'); });
}

}  // namespace

std::vector<prometheus::ClientMetric::Label> UsableLabels(const StaticLabels& labels) {
  std::vector<prometheus::ClientMetric::Label> usable;
  for (const auto& [name, value] : labels) {
    const bool repeated = std::any_of(usable.begin(), usable.end(),
                                      [&name = name](const auto& l) { return l.name == name; });
    if (value.empty() || repeated || !IsLabelName(name) || IsReservedLabel(name)) continue;
    if (usable.size() == kMaxStaticLabels) break;
    usable.push_back({name, value});
  }
  return usable;
}

void SplitLabels(std::string_view text, StaticLabels* labels) {
  while (!text.empty()) {
    const std::string_view label = text.substr(0, text.find(','));
    text.remove_prefix(std::min(label.size() + 1, text.size()));
    const std::size_t equals = label.find('=');
    if (equals == label.npos) continue;
    labels->emplace_back(label.substr(0, equals), label.substr(equals + 1));
  }
}

std::string LabelValue(std::string_view text, std::string_view name) {
  StaticLabels labels;
  SplitLabels(text, &labels);
  const auto found = std::find_if(labels.begin(), labels.end(),
                                  [name](const auto& each) { return each.first == name; });
  return found == labels.end() ? "" : found->second;
}

}  // namespace nccl_pulse
