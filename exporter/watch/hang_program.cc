#include "exporter/watch/hang_program.h"

#include <algorithm>
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

using Json = nlohmann::ordered_json;

constexpr std::size_t kMostLineBytes = 200;

std::string InputOf(const WatchedJob& job) {
  const bool is_certain = std::any_of(job.findings.hangs.begin(), job.findings.hangs.end(),
                                      [](const JobHang& each) { return each.is_certain; });
  const Json input = {{"job_id", job.job_id},       {"workload", job.workload},
                      {"since", SinceOf(job)},      {"certain", is_certain},
                      {"endpoints", job.endpoints}, {"diagnosis", ParseJson(job.findings.json)}};
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
  // By job, of See's thread: when its program was last due, in Unix time.
  std::map<std::string, double> last_due;
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
  const auto seconds = [](auto time) { return std::chrono::duration<double>(time).count(); };
  const double now_s = state.round_s;
  for (const WatchedJob& job : state.jobs) {
    if (job.findings.hangs.empty()) continue;
    const std::string name = NameOf(job);
    const double since_s = SinceOf(job);
    const auto last = shared.last_due.find(name);
    if (now_s - since_s < seconds(shared.options.after)) continue;
    if (last != shared.last_due.end() &&
        (since_s <= last->second || now_s - last->second < seconds(shared.options.pause))) {
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
      shared.waiting.push_back({name, InputOf(job)});
      shared.changed.notify_all();
    }
    if (shared.last_due.size() == kMostJobs) {
      shared.last_due.erase(
          std::min_element(shared.last_due.begin(), shared.last_due.end(),
                           [](const auto& a, const auto& b) { return a.second < b.second; }));
    }
    shared.last_due[name] = now_s;
  }
}

void HangProgram::Run(Shared& shared) {
  std::unique_lock<std::mutex> lock(shared.mutex);
  while (true) {
    shared.changed.wait(lock, [&shared] { return shared.is_stopping || !shared.waiting.empty(); });
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
