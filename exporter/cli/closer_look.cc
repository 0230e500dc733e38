#include "exporter/cli/closer_look.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "exporter/capture/local_process.h"
#include "exporter/control/control_client.h"

namespace nccl_pulse {
namespace {

constexpr std::array kSettings = {"TIMED_LAUNCHES_PER_SECOND", "NETWORK_WINDOW"};

// How long the changed settings outlast the recording.
constexpr std::chrono::milliseconds kSlack{2000};

using Pids = std::vector<pid_t>;

// Processes by reason, so that a common reason is printed once.
using Refusals = std::map<std::string, Pids>;

void AddNotes(const char* what, const Refusals& refusals, std::vector<std::string>* notes) {
  for (const auto& [why, pids] : refusals) {
    notes->push_back(absl::StrCat(what, " of process", pids.size() == 1 ? " " : "es ",
                                  absl::StrJoin(pids, ", "), ": ", why));
  }
}

}  // namespace

void CloserLook::PrintCost(std::FILE* said) {
  // Figures: docs/timing.md#overhead, and docs/costs.md for a step's callback.
  std::fputs(
      "Overhead of --every: each timed launch delays its GPU by about 5 us, and the thread that\n"
      "launches by about 6 us. 1,000 of them per second cost a GPU 0.5 % of its time. Small calls\n"
      "back to back take about 10 us each, or 15 us if all are timed. With network traffic, NCCL\n"
      "also reports each of its steps, in callbacks of 33 ns each on its proxy's thread.\n",
      said);
}

void CloserLook::Begin(const std::vector<JobProcess>& processes,
                       const std::vector<Address>& endpoints, std::chrono::milliseconds window,
                       std::FILE* said) {
  ControlQuestion question;
  question.patience = patience_;
  std::map<std::string, std::size_t> elsewhere;
  for (const JobProcess& each : processes) {
    // Both checks: another host's port may be forwarded here, and any endpoint may claim this name.
    if (IsOwnName(each.hostname) && IsThisHost(endpoints[each.endpoint])) {
      question.processes.push_back({static_cast<pid_t>(each.pid), each.pid_namespace});
    } else {
      ++elsewhere[each.hostname];
    }
  }
  // The recording begins when the last process has answered or timed out.
  const std::chrono::milliseconds lasting = patience_ + window + kSlack;
  question.commands = {MakeSet(absl::StrCat(kSettings[0], "=one-in-", every_), lasting),
                       MakeSet(absl::StrCat(kSettings[1], "=100"), lasting)};
  Refusals unreached, untimed, unwatched;
  // An empty list would address all processes.
  if (!question.processes.empty()) {
    for (const ControlAnswer& answer : AskProcesses(question)) {
      if (!answer.problem.empty()) unreached[answer.problem].push_back(answer.pid);
      for (std::size_t i = 0; i < std::min(answer.replies.size(), kSettings.size()); ++i) {
        const ControlReply& reply = answer.replies[i];
        if (reply.type != MessageType::kDone) {
          (i == 0 ? untimed : unwatched)[reply.text].push_back(answer.pid);
        } else {
          done_[i].push_back(answer.pid);
        }
      }
    }
  }
  AddNotes("--every has not reached all", unreached, &notes_);
  AddNotes("launches are timed as before", untimed, &notes_);
  AddNotes("network steps are watched as before", unwatched, &notes_);
  for (const auto& [host, count] : elsewhere) {
    notes_.push_back(absl::StrCat("--every has not reached ", count, " processes on ", host,
                                  ": --every works on this host only. Run it there"));
  }
  const std::string share = every_ == 1 ? "all launches" : absl::StrCat("one launch in ", every_);
  std::fprintf(said, "%zu of %zu processes time %s now. Their settings revert automatically.\n",
               done_[0].size(), processes.size(), share.c_str());
  for (const std::string& note : notes_) std::fprintf(said, "  %s\n", note.c_str());
}

void CloserLook::End() {
  for (std::size_t i = 0; i < kSettings.size(); ++i) {
    if (done_[i].empty()) continue;
    ControlQuestion question;
    question.patience = patience_;
    question.pids = done_[i];
    question.commands = {MakeSet(absl::StrCat(kSettings[i], "=default"))};
    AskProcesses(question);  // unreachable processes revert automatically
  }
}

}  // namespace nccl_pulse
