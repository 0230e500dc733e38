#include "exporter/fleet/job_report.h"

#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "exporter/base/communicator_id.h"
#include "exporter/base/plain_text.h"
#include "exporter/diagnosis/facts/rank_activity.h"
#include "exporter/diagnosis/words/words.h"

namespace nccl_pulse {
namespace {

constexpr std::size_t kMostRows = 10;
constexpr std::size_t kMostNotes = 10;
constexpr std::size_t kMostNames = 8;
constexpr std::size_t kMostRasLines = 60;

std::string Dash(const std::string& text) { return text.empty() ? "-" : text; }

std::vector<std::string> RankCells(const JobRank& rank) {
  std::string comm = CommunicatorText(rank.comm_id);
  if (rank.communicator != nullptr && !rank.communicator->name.empty()) {
    absl::StrAppend(&comm, " ", rank.communicator->name);
  }
  if (rank.process == nullptr || rank.communicator == nullptr)
    return {"-", "-", "-", "-", comm, absl::StrCat(rank.rank)};
  return {Dash(rank.process->hostname),
          Dash(rank.communicator->gpu),
          rank.process->is_of_dump ? "-" : PidCell(*rank.process),
          Dash(rank.process->global_rank),
          comm,
          absl::StrCat(rank.rank)};
}

std::vector<std::string> RankHeads() {
  return {"HOST", "GPU", "PID", "GLOBAL RANK", "COMMUNICATOR", "RANK"};
}

std::string More(std::size_t all) {
  return all > kMostRows ? absl::StrCat("  ... ", all - kMostRows, " more (--json has them)\n")
                         : "";
}

std::string SuspectsTable(const JobLook& look) {
  std::vector<std::vector<std::string>> rows = {RankHeads()};
  rows.back().push_back("SINCE");
  rows.back().push_back("VERDICT");
  std::size_t all = 0;
  for (const JobRoot& root : look.verdict.roots) {
    for (const std::vector<JobRank>* ranks : {&root.ranks, &root.perhaps}) {
      for (const JobRank& rank : *ranks) {
        if (++all > kMostRows) continue;
        rows.push_back(RankCells(rank));
        rows.back().push_back(SinceWords(look, root.since_realtime_ns));
        rows.back().push_back(
            absl::StrCat(ranks == &root.perhaps ? "perhaps: nothing in flight; " : "",
                         HangVerdictName(root.verdict)));
      }
    }
  }
  return all == 0 ? "" : absl::StrCat("\nSuspects\n", AlignedRows(rows), More(all));
}

std::string WaitsTable(const JobLook& look) {
  const std::vector<JobWait>& waits = look.verdict.waits;
  if (waits.empty()) return "";
  std::vector<std::vector<std::string>> rows = {RankHeads()};
  for (const char* head : {"IN", look.is_of_dumps ? "SINCE" : "FOR", "WAITS FOR"}) {
    rows.back().push_back(head);
  }
  for (std::size_t i = 0; i < waits.size() && i < kMostRows; ++i) {
    const JobWait& wait = waits[i];
    rows.push_back(RankCells(wait.rank));
    rows.back().push_back(Dash(wait.op));
    rows.back().push_back(SinceWords(look, wait.since_realtime_ns));
    rows.back().push_back(WaitedFor(wait));
  }
  return absl::StrCat("\nWait: ", waits.size(), " of ", look.verdict.processes, " processes\n",
                      AlignedRows(rows), More(waits.size()));
}

std::string EndpointsText(const JobLook& look) {
  if (!look.outside.empty()) return "";
  std::string text = "\n";
  if (look.heard != 0) {  // else the first line says it
    absl::StrAppend(&text, look.heard, " of ", look.endpoints,
                    look.is_of_dumps ? " dumps could be used" : " endpoints answered");
    if (look.without_job != 0) {
      absl::StrAppend(&text, ", ", look.without_job, " of them without a process of this job");
    }
    absl::StrAppend(&text, absl::StrFormat(", in %.1f s", look.seconds));
    if (look.looks > 1) absl::StrAppend(&text, " and ", look.looks, " polls");
    absl::StrAppend(&text, ", at ", DateWords(look.now_realtime_ns), ".\n");
  }
  for (const auto& [problem, names] : look.unheard) {
    const std::size_t more = names.size() > kMostNames ? names.size() - kMostNames : 0;
    absl::StrAppend(
        &text, look.is_of_dumps ? "  NOT USED  " : "  NO ANSWER  ", names.size(), ": ",
        absl::StrJoin(names.begin(), names.end() - static_cast<std::ptrdiff_t>(more), ", "),
        more == 0 ? "" : absl::StrCat(" and ", more, " more"), ": ", problem, "\n");
  }
  return text;
}

// Returns RAS' report, which may include ranks that no endpoint reports.
std::string RasText(const JobLook& look) {
  if (look.ras.json.empty() && look.ras.error.empty()) return "";
  std::string text =
      absl::StrCat("\nNCCL's RAS at ", look.ras_address, ", about its own job",
                   look.ras.error.empty() ? "" : absl::StrCat(" (", look.ras.error, ")"), ":\n");
  std::size_t lines = 0;
  const std::string plain = PlainLines(look.ras.json);
  for (const std::string_view line : absl::StrSplit(plain, '\n', absl::SkipEmpty())) {
    if (++lines <= kMostRasLines) absl::StrAppend(&text, "  | ", line, "\n");
  }
  if (lines > kMostRasLines) {
    absl::StrAppend(&text, "  | ... ", lines - kMostRasLines, " more lines (--json has them)\n");
  }
  return text;
}

}  // namespace

JobFinding FindingOfJob(const JobLook& look) {
  for (const JobRoot& root : look.verdict.roots) {
    if (!root.is_usual) return JobFinding::kHang;
  }
  if (look.heard < look.endpoints || look.health.status == HealthStatus::kIncomplete) {
    return JobFinding::kIncomplete;
  }
  return JobFinding::kNone;
}

JobState StateOf(const JobLook& look) {
  const JobFinding finding = FindingOfJob(look);
  if (finding == JobFinding::kHang) return JobState::kHang;
  const JobVerdict& verdict = look.verdict;
  const bool has_ended = verdict.processes == 0 && !look.set.ended.empty() && !look.is_of_dumps;
  if (has_ended && verdict.roots.empty()) return JobState::kEnded;
  if (finding == JobFinding::kIncomplete) return JobState::kIncomplete;
  if (!verdict.roots.empty()) return JobState::kWait;
  if (!verdict.stragglers.empty()) return JobState::kSlow;
  return look.health.status == HealthStatus::kIdle ? JobState::kIdle : JobState::kOk;
}

std::string JobText(const JobLook& look) {
  std::string text = absl::StrCat(JobSentence(look), "\n");
  if (!look.outside.empty()) absl::StrAppend(&text, "      ", look.outside, "\n");
  for (const JobRoot& root : look.verdict.roots) {
    if (!look.outside.empty() && &root == look.verdict.roots.data()) continue;  // said above
    absl::StrAppend(&text, "      ", root.text, "\n");
    if (&root - look.verdict.roots.data() >= 3) break;
  }
  absl::StrAppend(&text, SuspectsTable(look), WaitsTable(look));
  if (look.verdict.hung_communicators != 0) {
    const std::size_t blocked = look.verdict.blocked_communicators;
    absl::StrAppend(
        &text, "\n",
        Plural(look.verdict.hung_communicators, "communicator makes", "communicators make"),
        " no progress",
        blocked == 0
            ? ".\n"
            : absl::StrCat("; in ", blocked, " of them the missing ranks wait elsewhere.\n"));
  }
  if (look.went_on != 0) {
    absl::StrAppend(&text, "\n", Plural(look.went_on, "communicator"),
                    " made no progress at the first poll, and resumed before the second.\n");
  }
  for (const JobStraggler& straggler : look.verdict.stragglers) {
    const std::string sentence = StragglerSentence(straggler);
    if (text.find(sentence) != text.npos) continue;  // it is the first line
    absl::StrAppend(&text, "\nSLOW  ", sentence, "\n");
  }
  if (!look.verdict.doubt.empty()) {
    absl::StrAppend(&text, "\nDOUBT  ", look.verdict.doubt, "\n");
  }
  absl::StrAppend(&text, EndpointsText(look));
  const std::vector<std::string>& notes = look.health.notes;
  for (std::size_t i = 0; i < notes.size() && i < kMostNotes; ++i) {
    absl::StrAppend(&text, "  ", notes[i], "\n");
  }
  if (notes.size() > kMostNotes) {
    absl::StrAppend(&text, "  ... ", notes.size() - kMostNotes, " more notes (--json has them)\n");
  }
  return absl::StrCat(text, RasText(look));
}

}  // namespace nccl_pulse
