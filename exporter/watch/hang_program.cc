#include "exporter/watch/hang_program.h"

#include <algorithm>
#include <cstdint>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "exporter/base/json_text.h"
#include "exporter/base/patient_thread.h"
#include "exporter/fleet/run_program.h"
#include "nlohmann/json.hpp"

namespace nccl_pulse {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr std::size_t kMostLineBytes = 200;
constexpr std::chrono::seconds kReapEvery{1};

using Time = WatchState::Time;
using Users = std::vector<int64_t>;

// Hangs of processes that carry one job ID and belong to the same users. Any user can claim a job
// ID: hangs of different users are never one hang.
struct HangOfUsers {
  Time since = Time::max();  // when the oldest began
  std::shared_ptr<const HangReport> report;
};

std::map<Users, HangOfUsers> ByUsers(const JobFindings& findings) {
  std::map<Users, HangOfUsers> by_users;
  for (const JobHang& hang : findings.hangs) {
    HangOfUsers& all = by_users[hang.report == nullptr ? Users() : hang.report->users];
    const Time since = SinceOf(hang, findings);
    if (since >= all.since) continue;
    all.since = since;
    all.report = hang.report;
  }
  return by_users;
}

std::string InputOf(const WatchedJob& job, const Users& users, const HangOfUsers& hang,
                    double now_s, double lasted_s) {
  OrderedJson user_ids = OrderedJson::array();
  for (const int64_t user : users) {
    user_ids.push_back(user < 0 ? OrderedJson(nullptr) : OrderedJson(user));
  }
  const OrderedJson input = {
      {"job_id", job.job_id},
      {"workload", job.workload},
      {"users", std::move(user_ids)},
      {"since", now_s - lasted_s},
      {"lasted", lasted_s},
      {"endpoints", job.endpoints},
      {"diagnosis", ParseJson(hang.report == nullptr ? "" : hang.report->json)}};
  return JsonText(input, 2) + "\n";
}

std::string LastLine(std::string text) {
  absl::StripAsciiWhitespace(&text);
  text.erase(0, text.rfind('\n') + 1);  // npos + 1 is 0
  return absl::Utf8SafeCEscape(text.substr(0, kMostLineBytes));
}

}  // namespace

struct HangProgram::Shared : PatientThread {
  struct Due {
    std::string job, input;
  };

  Options options;
  // By job and users: when the program was last due. Used by See's thread.
  std::map<std::pair<std::string, Users>, Time> last_due;
  bool was_full = false;

  std::deque<Due> waiting;  // `mutex` guards it

  void Log(LogLevel level, const std::string& line) const {
    if (options.log) options.log(level, line);
  }
};

std::unique_ptr<HangProgram> HangProgram::Start(Options options) {
  auto shared = std::make_shared<Shared>();
  shared->options = std::move(options);
  const std::string error = PatientThread::Start(shared, Run);
  if (!error.empty()) {
    shared->Log(LogLevel::kWarning, absl::StrCat("no program is started on a hang: ", error));
    return nullptr;
  }
  return std::unique_ptr<HangProgram>(new HangProgram(std::move(shared)));
}

HangProgram::HangProgram(std::shared_ptr<Shared> shared) : shared_(std::move(shared)) {}

HangProgram::~HangProgram() { Stop(std::chrono::milliseconds(0)); }

void HangProgram::See(const WatchState& state) {
  Shared& shared = *shared_;
  const Time now = state.round_at;
  for (const WatchedJob& job : state.jobs) {
    for (const auto& [users, hang] : ByUsers(job.findings)) {
      const std::pair key(NameOf(job), users);
      const Time since = hang.since;
      const auto last = shared.last_due.find(key);
      if (now - since < shared.options.after) continue;
      if (last != shared.last_due.end() &&
          (since <= last->second || now - last->second < shared.options.pause)) {
        continue;
      }
      {
        const std::lock_guard<std::mutex> lock(shared.mutex);
        if (shared.waiting.size() == kMostWaiting) {
          if (!std::exchange(shared.was_full, true)) {
            shared.Log(LogLevel::kWarning,
                       absl::StrCat(kMostWaiting, " hangs wait for ", shared.options.path,
                                    ": further hangs wait until these are done"));
          }
          return;
        }
        const double lasted_s = std::chrono::duration<double>(now - since).count();
        shared.waiting.push_back({key.first, InputOf(job, users, hang, state.round_s, lasted_s)});
        shared.changed.notify_all();
      }
      if (shared.last_due.size() == kMostJobs) {
        shared.last_due.erase(
            std::min_element(shared.last_due.begin(), shared.last_due.end(),
                             [](const auto& a, const auto& b) { return a.second < b.second; }));
      }
      shared.last_due[key] = now;
    }
  }
}

void HangProgram::Run(Shared& shared) {
  std::unique_lock<std::mutex> lock(shared.mutex);
  while (true) {
    const auto is_due = [&shared] { return shared.is_stopping || !shared.waiting.empty(); };
    while (!shared.changed.wait_for(lock, kReapEvery, is_due)) ReapOrphans();
    if (shared.is_stopping) break;
    const Shared::Due due = std::move(shared.waiting.front());
    shared.waiting.pop_front();
    lock.unlock();
    const std::string what = absl::StrCat(shared.options.path, " for the job ", due.job);
    shared.Log(LogLevel::kInfo, absl::StrCat("starting ", what));
    try {
      const ProgramOutput output =
          RunProgram({shared.options.path}, shared.options.patience, due.input);
      const std::string said = LastLine(output.text);
      shared.Log(output.error.empty() ? LogLevel::kInfo : LogLevel::kWarning,
                 absl::StrCat(what, ": ", output.error.empty() ? "done" : output.error,
                              said.empty() ? "" : absl::StrCat("; its last line: ", said)));
    } catch (const std::exception& problem) {
      shared.Log(LogLevel::kWarning, absl::StrCat(what, ": ", problem.what()));
    }
    lock.lock();
  }
}

bool HangProgram::Stop(std::chrono::milliseconds patience) { return shared_->Stop(patience); }

}  // namespace nccl_pulse
