#include "exporter/watch/watch_page.h"

#include <cstddef>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "exporter/diagnosis/words/rank_words.h"
#include "exporter/diagnosis/words/words.h"
#include "exporter/fleet/job_report.h"
#include "exporter/watch/question.h"

namespace nccl_pulse {
namespace {

constexpr char kStyle[] =
    "body{font:14px/1.45 system-ui,sans-serif;margin:1.5rem auto;max-width:90rem;padding:0 1rem;"
    "color-scheme:light dark}h1{font-size:1.15rem}table{border-collapse:collapse;width:100%}"
    "td,th{text-align:left;vertical-align:top;padding:.35rem .75rem;border-bottom:1px solid #8886}"
    ".hang b{color:#c8281e}.wait b,.slow b,.incomplete b{color:#9a6200}.ok b{color:#1b8a3c}"
    "pre{white-space:pre-wrap}.quiet{opacity:.75}td:nth-child(2) b{text-transform:uppercase}"
    // On a phone each job is a block.
    "@media(max-width:45rem){table,tbody,tr,td{display:block}tr:first-child{display:none}"
    "tr{border-bottom:1px solid #8886;padding:.5rem 0}td{border:0;padding:.1rem 0}"
    "td:nth-child(4)::before{content:\"Processes: \"}summary.nodes::before{content:\"Nodes: \"}}";
constexpr std::size_t kMostLinks = 64;

std::string Html(const std::string& text) {
  return absl::StrReplaceAll(text,
                             {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\"", "&quot;"}});
}

std::string Head(const std::string& title, bool is_live) {
  return absl::StrCat("<!doctype html><html lang=en><meta charset=utf-8>",
                      "<meta name=viewport content=\"width=device-width\">",
                      is_live ? "<meta http-equiv=refresh content=5>" : "", "<title>", Html(title),
                      "</title><style>", kStyle, "</style>");
}

std::string Name(const WatchedJob& job) {
  if (job.job_id.empty() && job.workload.empty()) return "a job without ID";
  const std::string others =
      job.other_ids.empty() ? "" : absl::StrCat(", ", absl::StrJoin(job.other_ids, ", "));
  return job.workload == job.job_id || job.workload.empty()
             ? absl::StrCat(job.job_id, others)
             : absl::StrCat(job.workload, job.job_id.empty() ? "" : " (", job.job_id, others,
                            job.job_id.empty() ? "" : ")");
}

// Returns "HANG  " of "HANG  rank 1 ...".
std::string WordOf(const std::string& sentence) {
  const std::size_t end = sentence.find("  ");
  return end == sentence.npos || end > sentence.find(' ') ? "" : sentence.substr(0, end + 2);
}

// Returns a link to the page of a node, which links back.
std::string NodeLink(const std::string& url, const std::string& own_url, const std::string& text) {
  return absl::StrCat("<a href=\"", Html(url),
                      own_url.empty() ? "" : absl::StrCat("#watch=", PercentEncoded(own_url)),
                      "\">", Html(text), "</a>");
}

std::string Nodes(const WatchedJob& job, const std::string& own_url) {
  std::string links;
  for (std::size_t i = 0; i < job.endpoints.size() && i < kMostLinks; ++i) {
    const std::string& url = job.endpoints[i];
    absl::StrAppend(&links, i == 0 ? "" : " ",
                    NodeLink(url, own_url, url.substr(url.find("//") + 2)));
  }
  const std::size_t more = job.endpoints.size() - std::min(job.endpoints.size(), kMostLinks);
  return absl::StrCat("<details><summary class=nodes>", job.endpoints.size(), "</summary>", links,
                      more == 0 ? "" : absl::StrCat(" and ", more, " more"), "</details>");
}

std::string Verdict(const WatchedJob& job, const std::string& own_url) {
  const JobFindings& findings = job.findings;
  std::string html =
      job.is_heard || findings.silent_since_s != 0
          ? ""
          : "<b>Ended or unreachable</b>: its endpoints do not answer. Last verdict: ";
  // The column before has the first word.
  absl::StrAppend(&html, findings.sentence.empty()
                             ? job.is_heard ? "not polled yet" : "none"
                             : Html(findings.sentence.substr(WordOf(findings.sentence).size())));
  if (findings.silent_since_s != 0) {
    absl::StrAppend(&html, " <b>Last heard at ",
                    ClockWords(static_cast<int64_t>(findings.silent_since_s * 1e9)),
                    ": its endpoints are silent.</b>");
  }
  const auto link = [&](const WatchedRank& who) {
    if (who.endpoint.empty()) return;
    absl::StrAppend(&html, "<br>",
                    NodeLink(who.endpoint, own_url, absl::StrCat("page of ", who.hostname)));
  };
  for (const JobHang& each : findings.hangs) link(each.suspect);
  for (const JobSlow& each : findings.stragglers) link(each.suspect);
  if (!findings.text.empty() && findings.state <= JobState::kIncomplete) {
    absl::StrAppend(&html, "<details><summary>details</summary><pre>", Html(findings.text),
                    "</pre></details>");
  }
  if (!job.job_id.empty()) {
    absl::StrAppend(&html, " <a href=\"?job_id=", PercentEncoded(job.job_id),
                    "\">diagnose now</a>");
  }
  return html;
}

std::string Silent(const WatchState& state) {
  std::string html;
  for (const auto& [problem, names] : state.silent) {
    absl::StrAppend(&html, "<details><summary>", names.size(), ": ", Html(problem), "</summary>");
    for (const std::string& name : names) absl::StrAppend(&html, Html(name), " ");
    absl::StrAppend(&html, "</details>");
  }
  return html.empty() ? "" : absl::StrCat("<h2>Endpoints that do not answer</h2>", html);
}

}  // namespace

std::string WatchPage(const WatchState& state, const std::string& own_url) {
  std::string html =
      absl::StrCat(Head("NCCL Pulse: all jobs", true), "<h1>NCCL Pulse: all jobs</h1>");
  if (state.round_s == 0) return absl::StrCat(html, "<p>The first round has not ended yet.\n");
  absl::StrAppend(&html, "<p class=quiet>",
                  DateWords(static_cast<int64_t>(state.round_s * 1e3) * 1000000), ", ",
                  Plural(state.answered, "endpoint"), " answered");
  if (!state.find_error.empty()) {
    absl::StrAppend(&html, "<p><b>", Html(state.find_error), "</b>");
  }
  absl::StrAppend(&html, "<table><tr><th>Job<th>State<th>Verdict<th>Processes<th>Nodes");
  for (const WatchedJob& job : state.jobs) {
    const char* const name = JobStateName(job.findings.state);
    absl::StrAppend(&html, "\n<tr class=", name, "><td>", Html(Name(job)), "<td><b>", name,
                    "</b><td>", Verdict(job, own_url), "<td>", job.processes, "<td>",
                    Nodes(job, own_url));
  }
  return absl::StrCat(html, "</table>", Silent(state), "\n");
}

std::string VerdictPage(const std::string& text) {
  return absl::StrCat(Head("NCCL Pulse: diagnosis", false), "<a href=\"?\">all jobs</a><pre>",
                      Html(text), "</pre>\n");
}

}  // namespace nccl_pulse
