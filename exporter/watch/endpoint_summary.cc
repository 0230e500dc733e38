#include "exporter/watch/endpoint_summary.h"

#include <algorithm>

#include "exporter/base/json_field.h"
#include "exporter/base/json_text.h"
#include "nlohmann/json.hpp"

namespace nccl_pulse {
namespace {

using Json = nlohmann::json;

double Number(const Json& object, const char* name) {
  const Json& value = At(object, name);
  return value.is_number() ? value.get<double>() : 0;
}

// Returns the objects in a list.
std::vector<const Json*> Objects(const Json& object, const char* name) {
  std::vector<const Json*> objects;
  const Json& list = At(object, name);
  if (!list.is_array()) return objects;
  for (const Json& each : list) {
    if (each.is_object()) objects.push_back(&each);
  }
  return objects;
}

// Adds the texts in a list.
void AddTexts(const Json& object, const char* name, std::vector<std::string>* texts) {
  const Json& list = At(object, name);
  if (!list.is_array()) return;
  for (const Json& each : list) {
    if (each.is_string()) texts->push_back(each.get<std::string>());
  }
}

}  // namespace

std::optional<EndpointSummary> ParseSummary(std::string_view text) {
  const Json json = ParseJson(text);
  if (!At(json, "time").is_number()) return std::nullopt;
  EndpointSummary summary;
  const double time_s = Number(json, "time");
  summary.health = TextAt(json, "health");
  for (const Json* each : Objects(json, "stands")) {
    summary.stalls.push_back(
        {time_s - Number(*each, "since"), Number(*each, "hang_after"), At(*each, "usual") == true});
    // The communicator may have been left out of the other list.
    constexpr std::size_t kDigits = 16;
    const std::string id = TextAt(*each, "communicator");
    if (id.size() == kDigits) summary.communicators.push_back(id.substr(kDigits / 2));
  }
  summary.is_cut = Number(json, "left_out") > 0;
  summary.has_late_rank = !Objects(json, "late").empty();
  for (const Json* each : Objects(json, "jobs")) {
    const double processes = std::clamp(Number(*each, "processes"), 0.0, 1e6);
    summary.jobs.push_back(
        {TextAt(*each, "job_id"), TextAt(*each, "workload"), static_cast<int64_t>(processes)});
  }
  AddTexts(json, "communicators", &summary.communicators);
  AddTexts(json, "ended", &summary.ended);
  return summary;
}

}  // namespace nccl_pulse
