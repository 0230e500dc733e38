#include "exporter/fleet/verdict_server.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <deque>
#include <exception>
#include <iterator>
#include <map>
#include <mutex>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "exporter/fleet/verdict_question.h"
#include "exporter/http/http.h"
#include "metrics/shared_bytes.h"

namespace nccl_pulse {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kMostHeadBytes = 8 << 10;
constexpr std::size_t kMostBodyBytes = 1 << 20;
constexpr std::size_t kMostJobIdBytes = 256;
// That are taken from a client that was refused.
constexpr std::size_t kMostRestBytes = 64 << 10;
constexpr std::chrono::seconds kRestPatience{1};
constexpr std::chrono::seconds kRequestPatience{5};
constexpr std::chrono::seconds kAnswerPatience{10};
constexpr std::chrono::seconds kRefusedPatience{1};

constexpr std::string_view kText = "text/plain; charset=utf-8";
constexpr std::string_view kHtml = "text/html; charset=utf-8";
constexpr std::string_view kJson = "application/json";

struct Response {
  int status = 200;
  std::string_view type = kText;
  std::string body;
};

// Whether `events` come before `deadline`.
bool Await(int fd, short events, Clock::time_point deadline) {
  while (true) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0) return false;
    pollfd each = {fd, events, 0};
    const int ready = poll(&each, 1, static_cast<int>(left));
    if (ready > 0) return true;
    if (ready == 0 || errno != EINTR) return false;
  }
}

// The head, and the body that it announces. 0, the status of a refusal, or -1: nobody is there.
int Receive(int fd, HttpRequest* request, std::string* body) {
  const Clock::time_point deadline = Clock::now() + kRequestPatience;
  std::string input;
  bool has_head = false;
  while (true) {
    if (!has_head) {
      switch (ParseRequest(input, request)) {
        case ParseResult::kBad:
          return 400;
        case ParseResult::kIncomplete:
          if (input.size() > kMostHeadBytes) return 431;
          break;
        case ParseResult::kOk:
          has_head = true;
          if (request->has_body && request->body_bytes == 0) return 411;
          if (request->body_bytes > kMostBodyBytes) return 413;
          break;
      }
    }
    if (has_head && input.size() >= request->head_bytes + request->body_bytes) {
      *body = input.substr(request->head_bytes, request->body_bytes);
      return 0;
    }
    char buffer[16 << 10];
    if (!Await(fd, POLLIN, deadline)) return -1;
    const ssize_t got = recv(fd, buffer, sizeof(buffer), MSG_DONTWAIT);
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) return -1;
    if (got > 0) input.append(buffer, static_cast<std::size_t>(got));
  }
}

void Send(int fd, std::string_view bytes) {
  const Clock::time_point deadline = Clock::now() + kAnswerPatience;
  while (!bytes.empty() && Await(fd, POLLOUT, deadline)) {
    const ssize_t sent = send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) {
      bytes.remove_prefix(static_cast<std::size_t>(sent));
    } else if (errno != EAGAIN && errno != EINTR) {
      return;
    }
  }
}

std::string HtmlPage(const std::string& text) {
  return absl::StrCat(
      "<!doctype html><meta charset=utf-8><title>NCCL Pulse: diagnosis</title>"
      "<style>body{font:14px/1.5 monospace;margin:2em}pre{white-space:pre-wrap}</style><pre>",
      absl::StrReplaceAll(text, {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}}), "</pre>\n");
}

Response Text(int status, const std::string& text) { return {status, kText, text + "\n"}; }

// What the client still sends is taken, or the kernel would reset the connection before it has read
// the answer.
void Drain(int fd) {
  const Clock::time_point deadline = Clock::now() + kRestPatience;
  char rest[4096];
  for (std::size_t taken = 0; taken < kMostRestBytes && Await(fd, POLLIN, deadline);) {
    const ssize_t got = recv(fd, rest, sizeof(rest), MSG_DONTWAIT);
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) return;
    if (got > 0) taken += static_cast<std::size_t>(got);
  }
}

}  // namespace

class VerdictServer::State {
 public:
  State(Look look, Log log) : look_(std::move(look)), log_(std::move(log)) {}

  enum class Entry {
    kTaken,
    kRefused,  // there are as many as may be, and none that could make room: it is told so
    kNoThread  // not even that
  };

  // A client that makes room for this one does so at once; its thread leaves soon.
  Entry Enter(int fd) {
    const std::lock_guard<std::mutex> lock(clients_lock_);
    if (clients_ == 2 * kClients) return Entry::kNoThread;
    ++clients_;
    if (static_cast<int>(asking_.size()) + answered_ >= kClients) {
      if (asking_.empty()) return Entry::kRefused;
      shutdown(asking_.front(), SHUT_RDWR);
      asking_.pop_front();
    }
    asking_.push_back(fd);
    return Entry::kTaken;
  }
  // Closes it.
  void Leave(int fd, bool has_asked) {
    const std::lock_guard<std::mutex> lock(clients_lock_);
    // Under the lock: its number is not another connection's yet.
    close(fd);
    --clients_;
    if (has_asked) --answered_;
    const auto found = std::find(asking_.begin(), asking_.end(), fd);
    if (!has_asked && found != asking_.end()) asking_.erase(found);
  }

  // Whatever it asks.
  static void Refuse(int fd) {
    const Response response = Text(503, "others are being answered: ask again");
    // Read first, or the kernel would reset the connection.
    char request[kMostHeadBytes];
    if (Await(fd, POLLIN, Clock::now() + kRefusedPatience)) {
      (void)!recv(fd, request, sizeof(request), MSG_DONTWAIT);
    }
    Send(fd, Head(response) + response.body);
    shutdown(fd, SHUT_WR);
    Drain(fd);
  }

  // `has_asked`: something, and made no room for others.
  void Converse(int fd, bool* has_asked) {
    HttpRequest request;
    std::string body;
    const int refused = Receive(fd, &request, &body);
    if (refused < 0 || !NoteAsked(fd)) return;
    *has_asked = true;
    const Response response = refused != 0
                                  ? Text(refused, absl::StrCat(refused, " ", StatusText(refused)))
                                  : Answer(request, body);
    std::string head = Head(response);
    if (response.status == 405 && request.path == "/alertmanager") {
      const std::size_t allow = head.find("Allow: ");
      if (allow != head.npos) {
        head.replace(allow, head.find("\r\n", allow) - allow, "Allow: POST");
      }
    }
    Send(fd, head);
    if (request.method != HttpRequest::Method::kHead) Send(fd, response.body);
    shutdown(fd, SHUT_WR);
    Drain(fd);
  }

 private:
  static std::string Head(const Response& response) {
    return ResponseHead(
        response.status, response.type, response.body.size(), false,
        absl::StrCat(
            "Cache-Control: no-store\r\n",
            response.status == 503 ? absl::StrCat("Retry-After: ", kFresh.count(), "\r\n") : ""));
  }

  // False: it had to make room.
  bool NoteAsked(int fd) {
    const std::lock_guard<std::mutex> lock(clients_lock_);
    const auto found = std::find(asking_.begin(), asking_.end(), fd);
    if (found == asking_.end()) return false;
    asking_.erase(found);
    ++answered_;
    return true;
  }

  struct Kept {
    Clock::time_point at;
    JobAnswer answer;
  };

  Response Answer(const HttpRequest& request, const std::string& body) {
    const bool is_post = request.method == HttpRequest::Method::kPost;
    if (request.method == HttpRequest::Method::kOther ||
        is_post != (request.path == "/alertmanager")) {
      const bool is_known = request.path == "/alertmanager" || request.path == "/" ||
                            request.path == "/last" || request.path == "/healthz" ||
                            request.path == "/api/v1/diagnosis";
      return is_known ? Text(405, "405 Method Not Allowed") : Text(404, "404 Not Found");
    }
    // Not an endpoint's "ok": who looks for endpoints must not take this for one.
    if (request.path == "/healthz") return Text(200, "pulse diagnose: ok");
    if (request.path == "/last") return Last();
    JobFilter filter;
    std::string error;
    if (is_post) {
      bool is_resolved = false;
      if (!ReadAlerts(body, &filter, &is_resolved, &error)) return Text(400, error);
      if (is_resolved) return Text(200, "resolved: nobody was asked");
    } else if (request.path == "/" || request.path == "/api/v1/diagnosis") {
      if (!ReadQuery(request.query, &filter, &error)) return Text(400, error);
    } else {
      return Text(404, "404 Not Found");
    }
    if (filter.job_id.size() > kMostJobIdBytes) return Text(400, "the job id is too long");
    const JobAnswer answer = Ask(filter);
    if (!answer.ok) {
      // It may have what a Prometheus said.
      return Text(503, CopyFromShared(answer.text.data(), answer.text.size()));
    }
    if (request.path == "/api/v1/diagnosis") return {200, kJson, answer.json};
    if (!is_post && absl::StrContains(request.accept, "text/html")) {
      return {200, kHtml, HtmlPage(answer.text)};
    }
    return {200, kText, answer.text};
  }

  JobAnswer Ask(const JobFilter& filter) {
    const std::string name = NameOf(filter);
    // One at a time: who waits here for the same job finds the answer when it is made.
    // By the wall clock, because ThreadSanitizer does not see a lock that waits by the steady one. If
    // it is set, somebody waits for longer or shorter.
    const std::unique_lock<std::timed_mutex> lock(look_lock_,
                                                  std::chrono::system_clock::now() + kLookPatience);
    if (!lock.owns_lock()) {
      JobAnswer busy;
      busy.text = "other jobs are being looked at: ask again";
      return busy;
    }
    {
      const std::lock_guard<std::mutex> kept_lock(kept_lock_);
      const auto found = fresh_.find(name);
      if (found != fresh_.end() && Clock::now() - found->second.at < kFresh) {
        return found->second.answer;
      }
    }
    JobAnswer answer = look_(filter);
    const std::string said = absl::StrCat(name, ": ", answer.ok ? answer.sentence : answer.text);
    // It may have what an endpoint said: nothing of it may steer a terminal.
    const std::string line = CopyFromShared(said.data(), said.size());
    log_(line);
    const std::lock_guard<std::mutex> kept_lock(kept_lock_);
    for (auto each = fresh_.begin(); each != fresh_.end();) {
      each = Clock::now() - each->second.at < kFresh ? std::next(each) : fresh_.erase(each);
    }
    if (fresh_.size() < kKept) fresh_[name] = {Clock::now(), answer};
    last_.push_front(absl::StrCat(
        absl::FormatTime(absl::RFC3339_sec, absl::Now(), absl::UTCTimeZone()), "  ", line, "\n"));
    if (last_.size() > kKept) last_.pop_back();
    return answer;
  }

  Response Last() {
    const std::lock_guard<std::mutex> lock(kept_lock_);
    Response response;
    for (const std::string& line : last_) response.body += line;
    if (last_.empty()) response.body = "nobody has asked yet\n";
    return response;
  }

  const Look look_;
  const Log log_;
  std::timed_mutex look_lock_;
  std::mutex kept_lock_;
  std::map<std::string, Kept> fresh_;  // by what was asked for
  std::deque<std::string> last_;
  std::mutex clients_lock_;
  int clients_ = 0;         // threads
  int answered_ = 0;        // of these, with a request
  std::deque<int> asking_;  // those without one, the longest first
};

VerdictServer::VerdictServer(Look look, Log log)
    : state_(std::make_shared<State>(std::move(look), std::move(log))) {}

VerdictServer::~VerdictServer() = default;

int VerdictServer::Serve(int listener) {
  while (true) {
    if (!Await(listener, POLLIN, Clock::now() + std::chrono::hours(1))) continue;
    const int fd = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
      if (errno == EBADF || errno == EINVAL || errno == ENOTSOCK) return errno;
      // Out of descriptors, or the client has gone: not a moment to spin.
      if (errno != EAGAIN && errno != ECONNABORTED) {
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
      }
      continue;
    }
    const State::Entry entry = state_->Enter(fd);
    if (entry == State::Entry::kNoThread) {
      close(fd);
      continue;
    }
    try {
      std::thread([state = state_, fd, entry] {
        bool has_asked = false;
        try {
          if (entry == State::Entry::kRefused) {
            State::Refuse(fd);
          } else {
            state->Converse(fd, &has_asked);
          }
        } catch (const std::exception&) {
          // Out of memory: this client alone is lost.
        }
        state->Leave(fd, has_asked);
      }).detach();
    } catch (const std::system_error&) {
      state_->Leave(fd, false);
    }
  }
}

}  // namespace nccl_pulse
