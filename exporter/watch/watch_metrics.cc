#include <algorithm>
#include <array>
#include <cstddef>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "exporter/base/plain_text.h"
#include "exporter/diagnosis/words/rank_words.h"
#include "exporter/exposition/text_format.h"
#include "exporter/watch/question.h"
#include "exporter/watch/watch_page.h"

namespace nccl_pulse {
namespace {

using Labels = std::vector<std::pair<std::string, std::string>>;

class Gauges {
 public:
  void Begin(std::string_view name, std::string_view help) {
    Family& family = families_.emplace_back();
    family.name = name;
    family.help = help;
    family.type = prometheus::MetricType::Gauge;
  }

  void Add(const Labels& labels, double value) {
    prometheus::ClientMetric metric;
    for (const auto& [name, text] : labels) {
      // The text may come from an endpoint and must not break the page.
      std::string safe = PlainText(text);
      if (!safe.empty()) metric.label.push_back({name, std::move(safe)});
    }
    metric.gauge.value = value;
    families_.back().metric.push_back(std::move(metric));
  }

  std::string Text() const { return TextFormat(families_); }

 private:
  std::vector<Family> families_;
};

Labels JobLabels(const WatchedJob& job) {
  return {{"job_id", job.job_id}, {"workload", job.workload}};
}

void Append(const WatchedRank& who, Labels* labels) {
  for (auto& [name, value] : Labels{{"comm", who.comm},
                                    {"rank", who.rank},
                                    {"global_rank", who.global_rank},
                                    {"Hostname", who.hostname},
                                    {"gpu", who.gpu},
                                    {"UUID", who.uuid},
                                    {"pid", who.pid},
                                    {"source", who.source}}) {
    labels->emplace_back(name, std::move(value));
  }
  labels->insert(labels->end(), who.labels.begin(), who.labels.end());
}

// "; its endpoints are silent since 12:03:05 UTC"
std::string Silence(const JobFindings& findings) {
  if (findings.silent_since_s == 0) return "";
  return absl::StrCat("; its endpoints are silent since ",
                      ClockWords(static_cast<int64_t>(findings.silent_since_s * 1e9)));
}

void AddHangs(const WatchState& state, const std::string& external_url, Gauges* gauges) {
  gauges->Begin(
      "nccl_job_hang_start_timestamp_seconds",
      "Since when a job is stalled, and the rank that blocks it. One series for each cause, "
      "with its first rank. Expected waits are left out");
  for (const WatchedJob& job : state.jobs) {
    for (const JobHang& hang : job.findings.hangs) {
      Labels labels = JobLabels(job);
      Append(hang.suspect, &labels);
      labels.emplace_back("verdict", hang.verdict);
      labels.emplace_back("op", hang.op);
      gauges->Add(labels, hang.since_s);
    }
  }
  gauges->Begin(
      "nccl_job_hang_info",
      "Texts of a hang for alerts. Joins nccl_job_hang_start_timestamp_seconds by its labels");
  for (const WatchedJob& job : state.jobs) {
    for (const JobHang& hang : job.findings.hangs) {
      Labels labels = JobLabels(job);
      labels.emplace_back("comm", hang.suspect.comm);
      labels.emplace_back("rank", hang.suspect.rank);
      labels.emplace_back("text", hang.text + Silence(job.findings));
      labels.emplace_back("first_step", hang.first_step);
      if (!external_url.empty()) {
        labels.emplace_back("report", absl::StrCat(external_url, ReportQuery(job, hang)));
      }
      gauges->Add(labels, 1);
    }
  }
  gauges->Begin("nccl_job_hang_process_start_timestamp_seconds",
                "Start of the youngest process that takes part in the hang");
  std::map<Labels, double> starts_s;  // jobs without ID have the same labels
  for (const WatchedJob& job : state.jobs) {
    for (const JobHang& hang : job.findings.hangs) {
      if (hang.job_start_s == 0) continue;
      double& start_s = starts_s[JobLabels(job)];
      start_s = std::max(start_s, hang.job_start_s);
    }
  }
  for (const auto& [labels, start_s] : starts_s) gauges->Add(labels, start_s);
}

void AddIdle(const WatchState& state, Gauges* gauges) {
  gauges->Begin("nccl_job_idle_start_timestamp_seconds",
                "Since when no rank of a job has called NCCL, if that is its longest pause so far");
  std::map<Labels, double> since_s;  // jobs without ID have the same labels
  for (const WatchedJob& job : state.jobs) {
    if (job.findings.state != JobState::kIdle) continue;
    double& longest_s =
        since_s.try_emplace(JobLabels(job), job.findings.idle_since_s).first->second;
    longest_s = std::min(longest_s, job.findings.idle_since_s);
  }
  for (const auto& [labels, idle_since_s] : since_s) gauges->Add(labels, idle_since_s);
}

void AddStragglers(const WatchState& state, Gauges* gauges) {
  gauges->Begin("nccl_job_straggler_ratio",
                "Share of its time that a job loses because a rank, or all ranks of a host, arrive "
                "late, over "
                "the calls that the last poll has seen");
  for (const WatchedJob& job : state.jobs) {
    for (const JobSlow& slow : job.findings.stragglers) {
      Labels labels = JobLabels(job);
      Append(slow.suspect, &labels);
      labels.emplace_back("first_step", slow.first_step);
      gauges->Add(labels, slow.seconds_per_second);
    }
  }
}

void AddOwn(const WatchState& state, Gauges* gauges) {
  gauges->Begin("nccl_watch_jobs", "Jobs by verdict");
  std::array<int, kJobStates> jobs{};
  for (const WatchedJob& job : state.jobs) ++jobs[static_cast<std::size_t>(job.findings.state)];
  for (int i = 0; i < kJobStates; ++i) {
    gauges->Add({{"state", JobStateName(static_cast<JobState>(i))}},
                jobs[static_cast<std::size_t>(i)]);
  }
  std::size_t silent = 0;
  for (const auto& [problem, names] : state.silent) silent += names.size();
  gauges->Begin("nccl_watch_endpoints", "Endpoints in the last round, by whether they answered");
  gauges->Add({{"state", "answered"}}, static_cast<double>(state.answered));
  gauges->Add({{"state", "silent"}}, static_cast<double>(silent));
  gauges->Begin("nccl_watch_find_failed", "1 if the list of endpoints could not be read");
  gauges->Add({}, state.find_error.empty() ? 0 : 1);
  gauges->Begin("nccl_watch_round_timestamp_seconds",
                "When the last round through all endpoints ended");
  if (state.round_s > 0) gauges->Add({}, state.round_s);
  gauges->Begin("nccl_watch_round_seconds", "Duration of the last round");
  if (state.round_s > 0) gauges->Add({}, state.round_seconds);
}

}  // namespace

std::string WatchMetrics(const WatchState& state, const std::string& external_url) {
  Gauges gauges;
  AddHangs(state, external_url, &gauges);
  AddIdle(state, &gauges);
  AddStragglers(state, &gauges);
  AddOwn(state, &gauges);
  return gauges.Text();
}

}  // namespace nccl_pulse
