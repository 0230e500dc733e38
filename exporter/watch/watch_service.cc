#include "exporter/watch/watch_service.h"

#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "exporter/base/error_text.h"
#include "exporter/fleet/job_report.h"
#include "exporter/http/entrance.h"
#include "exporter/http/server_loop.h"
#include "exporter/node/listener.h"
#include "exporter/watch/question.h"
#include "exporter/watch/watch_page.h"

namespace nccl_pulse {
namespace {

using Time = Watcher::Time;

// Share of one core for answering clients. Rounds and polls run on their own thread.
constexpr double kClientsCpuShare = 0.25;
constexpr std::size_t kMostAlertBytes = 1 << 20;
constexpr std::size_t kMostJobIdBytes = 256;
constexpr std::chrono::seconds kPauseAfterFailure{1};
// At most this many reports are logged per kReportsPeriod.
constexpr std::size_t kMostReports = 10;
constexpr std::chrono::minutes kReportsPeriod{1};

constexpr std::string_view kMetricsType = "text/plain; version=0.0.4; charset=utf-8";
constexpr std::string_view kPageHeaders =
    "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n"
    "Referrer-Policy: no-referrer\r\nContent-Security-Policy: default-src 'none'; "
    "style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'\r\n";

struct Answer {
  Time made;
  std::string text, json;
};

// Polls that clients have requested, and the results of finished polls.
class Desk {
 public:
  using Questions = std::map<std::string, std::pair<JobFilter, Time>>;

  enum class Told { kAnswer, kLater, kBusy };

  // Returns kAnswer if `answer` has the report, kLater if it will be made, kBusy if too many
  // requests wait or this one has waited for too long.
  Told Ask(const JobFilter& filter, Answer* answer) {
    const Time now = std::chrono::steady_clock::now();
    const std::string name = NameOf(filter);
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = answers_.find(name);
    if (found != answers_.end() && now - found->second.made < WatchService::kFresh) {
      *answer = found->second;
      return Told::kAnswer;
    }
    const auto asked = questions_.find(name);
    if (asked != questions_.end()) {
      return now - asked->second.second < WatchService::kPatience ? Told::kLater : Told::kBusy;
    }
    if (questions_.size() == WatchService::kMostWaitingReports) return Told::kBusy;
    questions_[name] = {filter, now};
    changed_.notify_all();
    return Told::kLater;
  }

  // Gets the request that has waited longest. Returns false if there is none until `until`.
  bool Next(Time until, const std::atomic<bool>& stopping, JobFilter* filter) {
    std::unique_lock<std::mutex> lock(mutex_);
    const auto is_due = [&] { return !questions_.empty() || stopping; };
    changed_.wait_until(lock, until, is_due);
    if (questions_.empty() || stopping) return false;
    *filter =
        std::min_element(questions_.begin(), questions_.end(), [](const auto& a, const auto& b) {
          return a.second.second < b.second.second;
        })->second.first;
    return true;
  }

  void Give(const JobFilter& filter, Answer answer) {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (auto each = answers_.begin(); each != answers_.end();) {
      const bool is_old = answer.made - each->second.made >= WatchService::kFresh;
      each = is_old ? answers_.erase(each) : std::next(each);
    }
    questions_.erase(NameOf(filter));
    answers_[NameOf(filter)] = std::move(answer);
  }

  void Wake() {
    const std::lock_guard<std::mutex> lock(mutex_);
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  Questions questions_;
  std::map<std::string, Answer> answers_;
};

}  // namespace

class WatchService::Impl {
 public:
  explicit Impl(Options options)
      : options_(std::move(options)),
        watcher_(options_.watcher),
        loop_(LoopOptions(), &entrance_) {}

  ~Impl() {
    BeginStop();
    for (std::thread* thread : {&serving_, &watching_}) {
      if (thread->joinable()) thread->join();
    }
  }

  bool Start(std::string* error) {
    // A single arena, so that a poll reuses memory freed by another thread's poll.
    mallopt(M_ARENA_MAX, 1);  // before other threads
    ListenAddress address;
    if (!ParseListenAddress(options_.listen_address, &address, error)) return false;
    Listener listener;
    if (const int failure = OpenAt(address, entrance_.descriptor(), &listener)) {
      *error = absl::StrCat("cannot serve on ", SpellAddress(address), ": ", ErrorText(failure),
                            failure == EADDRINUSE ? "; `ss -lnp` names the program" : "");
      return false;
    }
    address_ = listener.address;
    if (!wake_.Open() || !ready_.Open()) {
      *error = "cannot open an eventfd";
      return false;
    }
    serving_ = std::thread([this] { Serve(); });
    watching_ = std::thread([this] { Watch(); });
    return true;
  }

  const std::string& address() const { return address_; }

  bool Stop(std::chrono::milliseconds patience) {
    BeginStop();
    std::unique_lock<std::mutex> lock(mutex_);
    return watched_.wait_for(lock, patience, [this] { return has_watched_; });
  }

 private:
  void BeginStop() {
    stopping_ = true;
    wake_.Signal();
    desk_.Wake();
  }

  ServerLoop::Options LoopOptions() {
    ServerLoop::Options loop;
    loop.guard = options_.guard;
    loop.log = options_.log;
    loop.cpu_share = kClientsCpuShare / kClientsShare;
    loop.ready = &ready_;
    loop.handlers = {
        {"/", "all jobs; ?job_id=ID or ?comm=ID: a report on one",
         [this](const HttpRequest& request) { return AnswerPage(request); }},
        {"/metrics", "the same for Prometheus",
         [this](const HttpRequest&) {
           return TextResponse(200, WatchMetrics(*watcher_.state(), options_.external_url),
                               kMetricsType);
         }},
        {"/api/v1/diagnosis", "a report as JSON; ?job_id=ID or ?comm=ID",
         [this](const HttpRequest& request) { return AnswerQuestion(request, kJsonType); }},
        {"/alertmanager", "for Alertmanager's webhook",
         [this](const HttpRequest& request) { return AnswerAlert(request); }, kMostAlertBytes},
        // Differs from an endpoint's "ok", so that a search for endpoints does not take a watcher
        // for one.
        {"/healthz", "pulse watch: ok",
         [](const HttpRequest&) { return TextResponse(200, "pulse watch: ok\n"); }}};
    return loop;
  }

  static HttpResponse Html(std::string page) {
    HttpResponse response = TextResponse(200, std::move(page), kHtmlType);
    response.headers = std::string(kPageHeaders);
    return response;
  }

  std::string OwnUrl(const HttpRequest& request) const {
    const bool is_plain = std::all_of(request.host.begin(), request.host.end(), [](char c) {
      return absl::ascii_isalnum(static_cast<unsigned char>(c)) || absl::StrContains(".:-[]", c);
    });
    if (request.host.empty() || !is_plain) return "";
    const bool is_https = options_.guard != nullptr && options_.guard->is_https();
    return absl::StrCat(is_https ? "https://" : "http://", request.host, "/");
  }

  std::optional<HttpResponse> AnswerPage(const HttpRequest& request) {
    JobFilter filter;
    std::string error;
    if (!ReadQuery(request.query, &filter, &error)) return TextResponse(400, error + "\n");
    if (filter.job_id.empty() && !filter.comm_id) {
      return Html(WatchPage(*watcher_.state(), OwnUrl(request)));
    }
    return AnswerQuestion(request,
                          absl::StrContains(request.accept, "text/html") ? kHtmlType : kTextType);
  }

  std::optional<HttpResponse> AnswerQuestion(const HttpRequest& request, std::string_view type) {
    JobFilter filter;
    std::string error;
    if (!ReadQuery(request.query, &filter, &error)) return TextResponse(400, error + "\n");
    return AnswerLook(filter, type);
  }

  std::optional<HttpResponse> AnswerAlert(const HttpRequest& request) {
    JobFilter filter;
    bool is_resolved = false;
    std::string error;
    if (!ReadAlerts(request.body, &filter, &is_resolved, &error)) {
      return TextResponse(400, error + "\n");
    }
    if (is_resolved) return TextResponse(200, "resolved: no endpoint was asked\n");
    return AnswerLook(filter, kTextType);
  }

  std::optional<HttpResponse> AnswerLook(const JobFilter& filter, std::string_view type) {
    if (filter.job_id.size() > kMostJobIdBytes) {
      return TextResponse(400, "the job id is too long\n");
    }
    Answer answer;
    switch (desk_.Ask(filter, &answer)) {
      case Desk::Told::kLater:
        return std::nullopt;
      case Desk::Told::kBusy: {
        HttpResponse busy = TextResponse(503, "other requests are being answered: try again\n");
        busy.headers = absl::StrCat("Retry-After: ", kFresh.count(), "\r\n");
        return busy;
      }
      case Desk::Told::kAnswer:
        break;
    }
    if (type == kHtmlType) return Html(VerdictPage(answer.text));
    HttpResponse response = TextResponse(200, type == kJsonType ? answer.json : answer.text, type);
    response.headers = "Cache-Control: no-store\r\n";
    return response;
  }

  void Serve() {
    while (!stopping_) {
      try {
        loop_.Round(wake_, [] {});
      } catch (const std::exception& problem) {
        loop_.StartOver(problem.what());
      }
    }
    loop_.Close();
  }

  void Watch() {
    while (!stopping_) {
      const Time began = std::chrono::steady_clock::now();
      Time next = began + options_.interval;
      try {
        watcher_.Round();
        next = watcher_.NextRound(next);
        // Returns the memory of the poll's snapshots: its blocks are too small for the next poll's.
        malloc_trim(0);
      } catch (const std::exception& problem) {
        Log(absl::StrCat("a round failed: ", problem.what()));
        next = std::chrono::steady_clock::now() + kPauseAfterFailure;
      }
      // Wakes the requests that have waited for too long, so that they are answered.
      ready_.Signal();
      JobFilter filter;
      while (desk_.Next(next, stopping_, &filter)) Look(filter);
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    has_watched_ = true;
    watched_.notify_all();
  }

  void Look(const JobFilter& filter) {
    Answer answer;
    try {
      const JobLook look = watcher_.Ask(filter);
      answer.text = JobText(look);
      answer.json = JobJson(look);
      LogReport(absl::StrCat(NameOf(filter), ": ", JobSentence(look)));
    } catch (const std::exception& problem) {
      answer.text = answer.json = absl::StrCat("the report failed: ", problem.what(), "\n");
    }
    answer.made = std::chrono::steady_clock::now();
    desk_.Give(filter, std::move(answer));
    ready_.Signal();
  }

  // Logs a report, within a limit: clients may request any number.
  void LogReport(const std::string& line) {
    const Time now = std::chrono::steady_clock::now();
    if (now - reports_since_ >= kReportsPeriod) {
      if (reports_ > kMostReports) {
        Log(absl::StrCat("and ", reports_ - kMostReports, " other reports"));
      }
      reports_since_ = now;
      reports_ = 0;
    }
    if (++reports_ <= kMostReports) Log(line);
  }

  void Log(const std::string& line) const {
    if (options_.log) options_.log(LogLevel::kInfo, line);
  }

  const Options options_;
  Watcher watcher_;
  Desk desk_;
  ListeningSocket entrance_;
  Wake wake_, ready_;
  ServerLoop loop_;
  std::string address_;
  // Set before wake_ and the desk are signalled, which order it.
  std::atomic<bool> stopping_{false};
  std::mutex mutex_;
  std::condition_variable watched_;
  // Reports logged in the current period. Used by the watching thread.
  Time reports_since_{};
  std::size_t reports_ = 0;
  bool has_watched_ = false;  // guarded by mutex_: the watching thread has finished
  std::thread serving_, watching_;
};

std::unique_ptr<WatchService> WatchService::Start(Options options, std::string* error) {
  auto impl = std::make_unique<Impl>(std::move(options));
  if (!impl->Start(error)) return nullptr;
  return std::unique_ptr<WatchService>(new WatchService(std::move(impl)));
}

WatchService::WatchService(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

WatchService::~WatchService() = default;

bool WatchService::Stop(std::chrono::milliseconds patience) { return impl_->Stop(patience); }

const std::string& WatchService::address() const { return impl_->address(); }

}  // namespace nccl_pulse
