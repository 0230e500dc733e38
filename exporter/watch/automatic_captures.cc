#include "exporter/watch/automatic_captures.h"

#include <algorithm>
#include <exception>
#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "exporter/base/patient_thread.h"
#include "exporter/base/time.h"

namespace nccl_pulse {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

namespace {

// Makes room for another entry by dropping the oldest.
void LimitTo(std::size_t most, Uncaptured::Times* times) {
  if (times->size() < most) return;
  times->erase(std::min_element(times->begin(), times->end(),
                                [](const auto& a, const auto& b) { return a.second < b.second; }));
}

std::string ReasonOf(const JobSlow& slow) {
  const WatchedRank& who = slow.suspect;
  const std::string host = absl::StrCat("host ", who.hostname);
  if (who.pid.empty()) return absl::StrCat(host, " lags");
  if (who.global_rank.empty()) return absl::StrCat("pid ", who.pid, " on ", host, " lags");
  return absl::StrCat("global rank ", who.global_rank, " on ", host, " lags");
}

}  // namespace

void Uncaptured::See(const WatchState& state) {
  const WatchState::Time now = state.round_at;
  fresh_.clear();
  std::vector<Trouble> slow;
  for (const WatchedJob& job : state.jobs) {
    if (!job.findings.hangs.empty()) {
      const std::string key = NameOf(job);
      const auto last = hangs_.find(key);
      if (last == hangs_.end() || SinceOf(job) > last->second) {
        for (const JobHang& each : job.findings.hangs) {
          fresh_.push_back(
              {key, true, now, absl::StrCat("hang of communicator ", each.suspect.comm)});
        }
      }
    }
    for (const JobSlow& each : job.findings.stragglers) {
      const std::string reason = ReasonOf(each);
      const auto last = stragglers_.find(reason);
      if (last == stragglers_.end() || now - last->second > kStragglerIsOver) {
        slow.push_back({reason, false, now, reason});
      } else {
        last->second = now;
      }
    }
  }
  fresh_.insert(fresh_.end(), slow.begin(), slow.end());
}

void Uncaptured::Done(const std::vector<Trouble>& troubles) {
  for (const Trouble& each : troubles) {
    Times& times = each.is_hang ? hangs_ : stragglers_;
    LimitTo(kMost, &times);
    times[each.key] = each.seen;
    fresh_.erase(std::remove_if(fresh_.begin(), fresh_.end(),
                                [&](const Trouble& other) {
                                  return other.is_hang == each.is_hang && other.key == each.key;
                                }),
                 fresh_.end());
  }
}

struct AutomaticCaptures::Shared : PatientThread {
  using Troubles = std::vector<Uncaptured::Trouble>;
  struct Turn {
    steady_clock::time_point next{};  // no capture before this time
    int tries = 0;                    // failed tries
  };

  Options options;
  Uncaptured uncaptured;  // `mutex` guards it
  // Used by the thread that takes captures.
  Turn for_hang, for_straggler;
  std::string last_problem;

  // Logs a problem once; "": there is none.
  void Report(const std::string& problem) {
    if (problem == last_problem) return;
    last_problem = problem;
    if (!problem.empty() && options.log) options.log(LogLevel::kWarning, problem);
  }

  // Takes a capture. Returns "", or the error.
  std::string Take(const Troubles& troubles) {
    const std::string path = NewCapturePath(options.folder, RealtimeNs());
    std::string error;
    // Checked before the endpoint is asked.
    if (!Bundle::IsPossible(path, &error)) return absl::StrCat("capture failed: ", error);
    Capture capture = CaptureJob({options.endpoint}, options.capture);
    if (capture.look.heard == 0) return "capture failed: the agent's own endpoint is silent";
    std::string reasons;
    for (const Uncaptured::Trouble& each : troubles) absl::StrAppend(&reasons, each.reason, "\n");
    capture.bundle.Add("reason.txt", std::move(reasons));
    if (!capture.bundle.Write(path, &error)) {
      // The file name's time is left out: otherwise the log would show each try as a new problem.
      return absl::StrCat(
          "capture failed: ",
          absl::StrReplaceAll(error, {{path, absl::StrCat(options.folder.path, "/...tar.gz")}}));
    }
    if (options.log) {
      options.log(
          LogLevel::kWarning,
          absl::StrCat(
              troubles.front().reason,
              troubles.size() > 1 ? absl::StrCat(" and ", troubles.size() - 1, " more") : "", ": ",
              "capture saved: ", path));
    }
    RemoveOldCaptures(options.folder, options.limits);
    return "";
  }

  void Run() {
    RemovePartialCaptures(options.folder);
    std::unique_lock<std::mutex> lock(mutex);
    while (!is_stopping) {
      const Troubles troubles = uncaptured.fresh();
      const bool has_hang = !troubles.empty() && troubles.front().is_hang;
      Turn& turn = has_hang ? for_hang : for_straggler;
      // A new hang or straggler starts with a new count of tries.
      if (!has_hang) for_hang.tries = 0;
      if (troubles.empty()) {
        for_straggler.tries = 0;
        changed.wait(lock);
      } else if (steady_clock::now() < turn.next) {
        changed.wait_until(lock, turn.next);
      } else {
        lock.unlock();
        std::string problem;
        try {
          problem = Take(troubles);
        } catch (const std::exception& failure) {
          problem = absl::StrCat("capture failed: ", failure.what());
        }
        Report(problem);
        turn.next = for_straggler.next = steady_clock::now() + options.pause;
        lock.lock();
        if (problem.empty() || ++turn.tries >= kMostTries) {
          uncaptured.Done(troubles);
          for_hang.tries = for_straggler.tries = 0;
        }
      }
    }
  }
};

std::unique_ptr<AutomaticCaptures> AutomaticCaptures::Start(Options options) {
  auto shared = std::make_shared<Shared>();
  shared->options = std::move(options);
  shared->options.capture.most_bytes = shared->options.limits.bytes / 4;
  std::string error;
  if (!Bundle::IsPossible(NewCapturePath(shared->options.folder, RealtimeNs()), &error)) {
    shared->Report(absl::StrCat("capture failed: ", error));
  }
  error = PatientThread::Start(shared, [](Shared& its) { its.Run(); });
  if (!error.empty()) {
    shared->Report(absl::StrCat("no captures are taken: ", error));
    return nullptr;
  }
  return std::unique_ptr<AutomaticCaptures>(new AutomaticCaptures(std::move(shared)));
}

AutomaticCaptures::AutomaticCaptures(std::shared_ptr<Shared> shared) : shared_(std::move(shared)) {}

AutomaticCaptures::~AutomaticCaptures() { Stop(milliseconds(0)); }

void AutomaticCaptures::See(const WatchState& state) {
  const std::lock_guard<std::mutex> lock(shared_->mutex);
  shared_->uncaptured.See(state);
  shared_->changed.notify_all();
}

bool AutomaticCaptures::Stop(milliseconds patience) { return shared_->Stop(patience); }

}  // namespace nccl_pulse
