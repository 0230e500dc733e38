#include "exporter/fleet/capture_watch.h"

#include <algorithm>
#include <exception>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "exporter/base/patient_thread.h"
#include "exporter/base/realtime_clock.h"
#include "exporter/fleet/http_client.h"
#include "exporter/fleet/suspicions.h"

namespace nccl_pulse {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

namespace {

// Between two looks at the page: half of the time after which a hang is suspected, within these.
constexpr milliseconds kLeastLookPeriod{1000};
constexpr milliseconds kMostLookPeriod{5000};

}  // namespace

struct CaptureWatch::State : PatientThread {
  CaptureWatchOptions options;
  LogFunction log;

  // The thread's.
  Suspicions suspicions;
  struct Turn {
    steady_clock::time_point next{};  // no capture before
    int tries = 0;                    // that failed
  };
  Turn for_hang, for_straggler;
  std::string last_problem;
  bool was_full = false;

  // Says once what is wrong; "": all is well.
  void Report(const std::string& problem) {
    if (problem == last_problem) return;
    last_problem = problem;
    if (!problem.empty() && log) log(LogLevel::kWarning, problem);
  }

  void Look() {
    FleetClientOptions client = options.capture.look.client;
    AskAll({{options.endpoint, "/api/v1/communicators"}}, client,
           [this](std::size_t /*index*/, const FleetAnswer& answer) {
             if (!answer.error.empty() || answer.status != 200) {
               // Busy, as a rule; with another status it is the flags that are wrong.
               if (answer.status != 0 && answer.status != 503) {
                 Report(absl::StrCat("captures: the agent's own endpoint answers with status ",
                                     answer.status,
                                     answer.status == 401 ? ": it asks for a password" : ""));
               } else if (!answer.error.empty()) {
                 Report(absl::StrCat("captures: the agent's own endpoint does not answer: ",
                                     answer.error));
               }
               return;
             }
             suspicions.Look(answer.body, steady_clock::now());
             if (suspicions.is_full() && !std::exchange(was_full, true) && log) {
               log(LogLevel::kWarning,
                   absl::StrCat("captures: more than ", Suspicions::kMost,
                                " hangs or stragglers at once: the rest is ignored"));
             }
           });
  }

  void CaptureIfNew() {
    const std::vector<std::string> fresh = suspicions.New();
    // A hang does not wait until some time after a straggler: what led to it would be gone.
    const bool has_hang = suspicions.HasNewHang();
    Turn& turn = has_hang ? for_hang : for_straggler;
    // Tries of what has ended meanwhile are not those of the next.
    if (!has_hang) for_hang.tries = 0;
    if (fresh.empty()) for_straggler.tries = 0;
    if (fresh.empty() || steady_clock::now() < turn.next) return;
    const std::string problem = TakeCapture(fresh);
    turn.next = for_straggler.next = steady_clock::now() + options.pause;
    if (problem.empty() || ++turn.tries >= kMostTries) {
      suspicions.Done();
      for_hang.tries = for_straggler.tries = 0;
    }
    Report(problem);
  }

  // "" when it is written, or what is wrong.
  std::string TakeCapture(const std::vector<std::string>& reasons) {
    const std::string path = NewCapturePath(options.folder, RealtimeNs());
    std::string error;
    // Before anybody is asked.
    if (!Bundle::IsPossible(path, &error)) return absl::StrCat("no capture is kept: ", error);
    options.capture.look.hang_after = options.hang_after_now();
    Capture capture = CaptureJob({options.endpoint}, options.capture);
    if (capture.look.heard == 0) return "no capture is kept: the agent's own endpoint is silent";
    std::string text = absl::StrCat(absl::StrJoin(reasons, "\n"), "\n");
    capture.bundle.Add("reason.txt", std::move(text));
    if (!capture.bundle.Write(path, &error)) {
      // Without the time in the name, which would make each try another problem in the log.
      return absl::StrCat(
          "no capture is kept: ",
          absl::StrReplaceAll(error, {{path, absl::StrCat(options.folder.path, "/...tar.gz")}}));
    }
    if (log) {
      log(LogLevel::kWarning,
          absl::StrCat(reasons.front(),
                       reasons.size() > 1 ? absl::StrCat(" and ", reasons.size() - 1, " more") : "",
                       ": ", path, " has what is known of it"));
    }
    RemoveOldCaptures(options.folder, options.limits);
    return "";
  }

  void Run() {
    RemovePartialCaptures(options.folder);
    while (WaitUntil(steady_clock::now() +
                     std::clamp(options.hang_after_now() / 2, kLeastLookPeriod, kMostLookPeriod))) {
      try {
        Look();
        CaptureIfNew();
      } catch (const std::exception& problem) {
        Report(absl::StrCat("no capture is kept: ", problem.what()));
      }
    }
  }
};

std::unique_ptr<CaptureWatch> CaptureWatch::Start(CaptureWatchOptions options, LogFunction log) {
  auto state = std::make_shared<State>();
  state->options = std::move(options);
  state->log = std::move(log);
  state->options.capture.most_bytes = state->options.limits.bytes / 4;
  std::string error;
  if (!Bundle::IsPossible(NewCapturePath(state->options.folder, RealtimeNs()), &error)) {
    state->Report(absl::StrCat("no capture is kept: ", error));
  }
  error = PatientThread::Start(state, [](State& its) { its.Run(); });
  if (!error.empty()) {
    state->Report(absl::StrCat("no captures are taken: ", error));
    return nullptr;
  }
  return std::unique_ptr<CaptureWatch>(new CaptureWatch(std::move(state)));
}

bool CaptureWatch::Stop(milliseconds patience) { return state_->Stop(patience); }

CaptureWatch::~CaptureWatch() { Stop(milliseconds(0)); }

}  // namespace nccl_pulse
