#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "exporter/base/communicator_id.h"
#include "exporter/base/json_text.h"
#include "exporter/base/plain_text.h"
#include "exporter/base/time.h"
#include "exporter/diagnosis/words/words.h"
#include "exporter/fleet/job_report.h"
#include "nlohmann/json.hpp"

namespace nccl_pulse {
namespace {

using Json = nlohmann::ordered_json;

Json TextOrNull(const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); }

Json RankJson(const JobRank& rank) {
  Json json = {{"comm", CommunicatorText(rank.comm_id)}, {"rank", rank.rank}, {"process", nullptr}};
  if (rank.process == nullptr) return json;
  const ProcessSnapshot& process = *rank.process;
  json["process"] = {{"hostname", TextOrNull(process.hostname)},
                     {"pid", process.is_of_dump ? Json(nullptr) : Json(process.pid)},
                     {"pid_namespace", process.pid_namespace},
                     {"host_pid", HostPid(process) > 0 ? Json(HostPid(process)) : Json(nullptr)},
                     {"global_rank", TextOrNull(process.global_rank)},
                     {"local_rank", TextOrNull(process.local_rank)},
                     {"user", process.user >= 0 ? Json(process.user) : Json(nullptr)},
                     {"job_id", TextOrNull(process.job_id)},
                     {"labels", TextOrNull(process.static_labels)},
                     {"gpu", TextOrNull(rank.communicator->gpu)},
                     {"uuid", TextOrNull(rank.communicator->uuid)}};
  return json;
}

template <typename List>
Json RanksJson(const List& ranks) {
  Json json = Json::array();
  for (const JobRank& rank : ranks) json.push_back(RankJson(rank));
  return json;
}

Json RootJson(const JobRoot& root) {
  Json communicators = Json::array();
  for (const uint64_t comm_id : root.communicators)
    communicators.push_back(CommunicatorText(comm_id));
  return {{"verdict", HangVerdictName(root.verdict)},
          {"usual", root.is_usual},
          {"since", SecondsToMicrosecond(root.since_realtime_ns)},
          {"op", TextOrNull(root.op)},
          {"missing_call", TextOrNull(root.missing_call)},
          {"ranks", RanksJson(root.ranks)},
          {"perhaps", RanksJson(root.perhaps)},
          {"communicators", std::move(communicators)},
          {"first", FirstStep(root)},
          {"text", root.text}};
}

Json RasJson(const JobLook& look) {
  const std::string& json = look.ras.json;
  if (json.empty() && look.ras.error.empty()) return nullptr;
  return {{"address", look.ras_address},
          {"error", TextOrNull(look.ras.error)},
          {"report", TextOrNull(PlainLines(json))}};
}

Json EndpointsJson(const JobLook& look) {
  Json unheard = Json::array();
  for (const auto& [problem, names] : look.unheard) {
    unheard.push_back({{"why", problem}, {"endpoints", names}});
  }
  return {{"asked", look.endpoints},
          {"heard", look.heard},
          {"without_job", look.without_job},
          {"unheard", std::move(unheard)}};
}

}  // namespace

std::string JobJson(const JobLook& look) {
  Json roots = Json::array();
  for (const JobRoot& root : look.verdict.roots) roots.push_back(RootJson(root));
  Json stragglers = Json::array();
  for (const JobStraggler& straggler : look.verdict.stragglers) {
    stragglers.push_back({{"ranks", RanksJson(straggler.ranks)},
                          {"whole_host", straggler.is_whole_host},
                          {"seconds_per_second", straggler.seconds_per_second},
                          {"window_seconds", straggler.window_seconds},
                          {"first", FirstStep(straggler)},
                          {"text", straggler.text}});
  }
  Json waits = Json::array();
  for (const JobWait& wait : look.verdict.waits) {
    Json json = RankJson(wait.rank);
    json["since"] = SecondsToMicrosecond(wait.since_realtime_ns);
    json["op"] = TextOrNull(wait.op);
    json["for"] = WaitedFor(wait);
    waits.push_back(std::move(json));
  }
  const Json json = {{"time", SecondsToMicrosecond(look.now_realtime_ns)},
                     {"finding", JobFindingName(FindingOfJob(look))},
                     {"health", HealthStatusName(look.health.status)},
                     {"sentence", JobSentence(look)},
                     {"outside", TextOrNull(look.outside)},
                     {"roots", std::move(roots)},
                     {"stragglers", std::move(stragglers)},
                     {"doubt", TextOrNull(look.verdict.doubt)},
                     {"processes", look.verdict.processes},
                     {"hung_communicators", look.verdict.hung_communicators},
                     {"blocked_communicators", look.verdict.blocked_communicators},
                     {"went_on", look.went_on},
                     {"waits", std::move(waits)},
                     {"endpoints", EndpointsJson(look)},
                     {"notes", look.health.notes},
                     {"ras", RasJson(look)},
                     {"looks", look.looks},
                     {"seconds", look.seconds}};
  return JsonText(json, 2) + "\n";
}

}  // namespace nccl_pulse
