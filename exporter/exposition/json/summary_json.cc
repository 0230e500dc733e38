#include "exporter/exposition/json/summary_json.h"

#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "exporter/base/communicator_id.h"
#include "exporter/base/json_text.h"
#include "exporter/base/time.h"
#include "exporter/diagnosis/facts/rank_view.h"
#include "exporter/diagnosis/health.h"
#include "exporter/diagnosis/jobs.h"
#include "exporter/diagnosis/waits/hang.h"
#include "exporter/exposition/static_labels.h"
#include "nlohmann/json.hpp"

namespace nccl_pulse {
namespace {

using Json = nlohmann::ordered_json;

std::vector<Json> Stands(std::vector<CommunicatorView> views, int64_t now_ns) {
  Jobs jobs(views);
  SetThresholds(kDefaultHangAfterNs, &jobs, &views);
  std::vector<int64_t> thresholds;
  for (CommunicatorView& view : views) {
    thresholds.push_back(view.hang_after_ns);
    view.hang_after_ns = std::min(view.hang_after_ns, kListedAfterNs);
  }
  const DiagnosisResult waits = FindHangs(views, now_ns);
  std::vector<std::pair<int64_t, Json>> found;
  for (std::size_t i = 0; i < views.size(); ++i) {
    const auto add = [&](int64_t since_ns, const char* verdict, bool is_usual) {
      found.emplace_back(since_ns, Json{{"communicator", CommunicatorText(views[i].comm_id)},
                                        {"since", SecondsToMillisecond(since_ns)},
                                        {"hang_after", SecondsToMillisecond(thresholds[i])},
                                        {"verdict", verdict},
                                        {"usual", is_usual}});
    };
    if (waits[i].hang) {
      const Hang& hang = *waits[i].hang;
      add(hang.since_realtime_ns, HangVerdictName(hang.verdict), hang.is_usual);
    } else if (waits[i].queued) {
      add(waits[i].queued->since_realtime_ns, "queued", false);
    }
  }
  std::stable_sort(found.begin(), found.end(), [](const auto& a, const auto& b) {
    return std::tuple(a.second["usual"] == true, a.first) <
           std::tuple(b.second["usual"] == true, b.first);
  });
  // The newest comes second: it may be another job's, and must not be omitted in favor of a
  // well-known hang.
  if (found.size() > 2) std::rotate(found.begin() + 1, found.end() - 1, found.end());
  std::vector<Json> stands;
  stands.reserve(found.size());
  for (auto& each : found) stands.push_back(std::move(each.second));
  return stands;
}

std::vector<Json> Late(const DiagnosisResult& diagnosis) {
  std::vector<std::pair<double, Json>> found;
  for (const CommunicatorDiagnosis& each : diagnosis) {
    const auto add = [&](const std::vector<int32_t>& ranks, double seconds) {
      found.emplace_back(
          -seconds,
          Json{{"communicator", CommunicatorText(each.comm_id)},
               {"ranks", ranks},
               {"seconds_per_second", SecondsToMillisecond(static_cast<int64_t>(seconds * 1e9))}});
    };
    if (each.straggler) {
      add(each.straggler->ranks, each.straggler->seconds_per_second);
    } else if (each.perhaps_late) {
      add({each.perhaps_late->rank}, each.perhaps_late->seconds_per_second);
    }
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<Json> late;
  late.reserve(found.size());
  for (auto& each : found) late.push_back(std::move(each.second));
  return late;
}

std::vector<Json> NamesOfJobs(const SnapshotSet& snapshots) {
  std::map<std::pair<std::string, std::string>, int> processes;
  for (const auto* list : {&snapshots.processes, &snapshots.ended}) {
    for (const ProcessSnapshot& process : *list) {
      const bool is_live = process.end == ProcessEnd::kLive;
      const bool is_awaited =
          std::any_of(process.communicators.begin(), process.communicators.end(),
                      [](const auto& each) { return !each.finalized; });
      if (!is_live && !is_awaited) continue;
      processes[{process.job_id, LabelValue(process.static_labels, "workload")}] += is_live ? 1 : 0;
    }
  }
  std::vector<Json> jobs;
  for (const auto& [job, count] : processes) {
    jobs.push_back({{"job_id", job.first}, {"workload", job.second}, {"processes", count}});
  }
  return jobs;
}

// `are_ended`: only communicators without a live rank.
std::vector<Json> Communicators(const std::vector<CommunicatorView>& views, bool are_ended) {
  std::set<std::pair<int32_t, uint64_t>> shared;  // most ranks first
  for (const CommunicatorView& view : views) {
    const auto has = [&view](RankView::State state) {
      return std::any_of(view.ranks.begin(), view.ranks.end(),
                         [state](const RankView& rank) { return rank.state == state; });
    };
    const bool is_live = has(RankView::State::kLive);
    const bool is_used = (is_live && !are_ended) || (!is_live && has(RankView::State::kGone));
    if (is_used && view.ranks.size() < static_cast<std::size_t>(std::max(view.nranks, 0))) {
      shared.emplace(-view.nranks, view.comm_id);
    }
  }
  std::vector<Json> communicators;
  for (const auto& each : shared)
    communicators.emplace_back(CommunicatorText(each.second).substr(8));
  return communicators;
}

}  // namespace

std::string SummaryJson(const SnapshotSet& snapshots, const DiagnosisResult& diagnosis,
                        int64_t now_realtime_ns) {
  const std::vector<CommunicatorView> views = GroupByCommunicator(snapshots, now_realtime_ns);
  const Health health = HealthOf(snapshots, views, diagnosis, now_realtime_ns);
  const auto processes =
      std::count_if(snapshots.processes.begin(), snapshots.processes.end(),
                    [](const auto& process) { return process.end == ProcessEnd::kLive; });
  Json json = {{"time", SecondsToMillisecond(now_realtime_ns)},
               {"health", HealthStatusName(health.status)},
               {"processes", processes}};
  for (const char* list : {"stands", "late", "jobs", "communicators"}) json[list] = Json::array();
  json["left_out"] = 0;
  // Most important first. No list may take the others' room.
  std::size_t bytes = JsonText(json).size() + 4;  // digits of left_out
  std::size_t left_out = 0;
  const auto add = [&](const char* list, std::vector<Json> entries, std::size_t most) {
    for (Json& each : entries) {
      const std::size_t more = JsonText(each).size() + 1;
      if (json[list].size() == most || bytes + more >= kMostSummaryBytes) {
        ++left_out;
        continue;
      }
      bytes += more;
      json[list].push_back(std::move(each));
    }
  };
  add("stands", Stands(views, now_realtime_ns), 3);
  add("late", Late(diagnosis), 1);
  add("jobs", NamesOfJobs(snapshots), 3);
  add("communicators", Communicators(views, /*are_ended=*/false), views.size());
  json["left_out"] = left_out;
  bytes += sizeof("\"ended\":[],");
  add("ended", Communicators(views, /*are_ended=*/true), views.size());
  return JsonText(json) + "\n";
}

}  // namespace nccl_pulse
