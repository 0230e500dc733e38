#include "exporter/cli/demo_story.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "exporter/base/json_field.h"
#include "exporter/base/json_text.h"
#include "nlohmann/json.hpp"

namespace nccl_pulse {
namespace {

using Json = nlohmann::json;

constexpr double kBalanceSeconds = 12;
// How long a verdict stays on screen.
constexpr double kReadingSeconds = 12;
// `pulse diagnose` needs 10 s to report a hang, plus the time to type it.
constexpr double kHangReadingSeconds = 25;
constexpr double kLongestWaitSeconds = 90;
// A busy machine may miss a poll or two.
constexpr double kSilentSeconds = 10;

// Returns the pids of the active ranks.
std::vector<int> Pids(const Json& communicator) {
  std::vector<int> pids;
  for (const Json& rank : At(communicator, "ranks")) {
    const Json& pid = At(At(rank, "process"), "pid");
    if (At(rank, "active") == true && pid.is_number()) pids.push_back(pid.get<int>());
  }
  return pids;
}

bool Has(const std::vector<int>& pids, int pid) {
  return std::find(pids.begin(), pids.end(), pid) != pids.end();
}

}  // namespace

DemoSight DemoSight::Of(std::string_view page, const std::vector<int>& pids) {
  DemoSight sight;
  const Json json = ParseJson(page);
  for (const Json& communicator : At(json, "communicators")) {
    const std::vector<int> here = Pids(communicator);
    for (const int pid : here) {
      if (!Has(pids, pid)) sight.pid_of_other = pid;
    }
    if (At(communicator, "name") != "dp" || pids.empty() || !Has(here, pids.front())) continue;
    const Json& hang = At(communicator, "hang");
    const Json& straggler = At(communicator, "straggler");
    sight.comm = At(communicator, "comm").get<std::string>();
    if (straggler.is_object()) {
      sight.straggler = At(straggler, "rank").get<int>();
      sight.text = At(straggler, "text").get<std::string>();
    }
    if (hang.is_object() && At(hang, "usual") == false) {
      sight.suspects = At(hang, "suspects").get<std::vector<int>>();
      sight.text = At(hang, "text").get<std::string>();
    }
  }
  return sight;
}

void DemoStory::Enter(Scene scene, double now_s) {
  scene_ = scene;
  since_s_ = now_s;
  named_s_ = -1;
}

void DemoStory::HearOfSilence(double now_s, const DemoSight& sight,
                              std::vector<std::string>* lines) {
  if (sight.problem.empty()) {
    silent_s_ = -1;
    said_silent_ = false;
    return;
  }
  if (silent_s_ < 0) silent_s_ = now_s;
  if (said_silent_ || now_s - silent_s_ < kSilentSeconds) return;
  said_silent_ = true;
  lines->push_back(absl::StrCat(
      "WARNING: the endpoint has not answered for ", kSilentSeconds, " s: ", sight.problem,
      ". The job continues, but the demo can't tell what the page shows."));
}

bool DemoStory::IsNamed(const DemoSight& sight) const {
  switch (scene_) {
    case Scene::kNotBegun:
      return !sight.comm.empty();
    case Scene::kBalance:
      return false;
    case Scene::kStraggler:
      return sight.straggler == kLateRank && sight.suspects.empty();
    case Scene::kHang:
      return sight.suspects == std::vector<int>{kSilentRank};
    case Scene::kGoesOn:
      return !sight.comm.empty() && sight.suspects.empty();
  }
  return false;
}

bool DemoStory::IsOver(double now_s) const {
  if (scene_ == Scene::kNotBegun) return named_s_ >= 0 || now_s - since_s_ > kLongestWaitSeconds;
  if (scene_ == Scene::kBalance) return now_s - since_s_ >= kBalanceSeconds;
  if (named_s_ >= 0) {
    return now_s - named_s_ >= (scene_ == Scene::kHang ? kHangReadingSeconds : kReadingSeconds);
  }
  return now_s - since_s_ >= kLongestWaitSeconds;
}

std::vector<std::string> DemoStory::Advance(double now_s, const DemoSight& sight) {
  std::vector<std::string> lines;
  if (since_s_ < 0) since_s_ = now_s;
  HearOfSilence(now_s, sight, &lines);
  if (sight.pid_of_other != 0 && !said_other_) {
    said_other_ = true;
    lines.push_back(absl::StrCat("The page also shows another job (process ", sight.pid_of_other,
                                 "): one endpoint serves all jobs of a host. For a page of its "
                                 "own, set NCCL_PULSE_LISTEN=:9500."));
  }
  if (named_s_ < 0 && IsNamed(sight)) {
    named_s_ = now_s;
    if (scene_ == Scene::kStraggler) {
      lines.push_back("The page says SLOW. " + sight.text + " (Still rising.)");
    }
    if (scene_ == Scene::kHang) lines.push_back("The page says HANG. " + sight.text);
    if (scene_ == Scene::kGoesOn) {
      lines.emplace_back(
          "All four ranks are running again, and the page no longer says HANG. Totals since the "
          "start still include both faults.");
    }
  }
  if (!IsOver(now_s)) return lines;
  if (named_s_ < 0 && (scene_ == Scene::kStraggler || scene_ == Scene::kHang)) {
    lines.push_back(absl::StrCat("WARNING: the page did not name rank ",
                                 scene_ == Scene::kHang ? kSilentRank : kLateRank, " within ",
                                 kLongestWaitSeconds, " s."));
  }
  switch (scene_) {
    case Scene::kNotBegun:
    case Scene::kGoesOn:
      if (scene_ == Scene::kGoesOn) ++round_;
      Enter(Scene::kBalance, now_s);
      lines.emplace_back(
          round_ == 0
              ? "Now all is well. Look at Calls/s and Bus (bandwidth) of \"dp\": equal on all "
                "ranks."
              : "The job has restarted, and all is well: new communicators, counts from zero.");
      break;
    case Scene::kBalance:
      Enter(Scene::kStraggler, now_s);
      lines.push_back(absl::StrCat("Now rank ", kLateRank, " is late by ", kLatePercent,
                                   " % of a step. Look at p99 and Bus of \"dp\": bad on the ranks "
                                   "that wait, good on the late one. The page names it within "
                                   "30 s."));
      break;
    case Scene::kStraggler:
      Enter(Scene::kHang, now_s);
      lines.push_back(
          absl::StrCat("Now rank ", kLateRank, " is on time, and rank ", kSilentRank,
                       " has stopped calling. Look at the column For of \"dp\": the others wait. "
                       "The page names it within 15 s."));
      break;
    case Scene::kHang:
      Enter(Scene::kGoesOn, now_s);
      lines.push_back(absl::StrCat("Now rank ", kSilentRank, " calls again."));
      break;
  }
  return lines;
}

}  // namespace nccl_pulse
