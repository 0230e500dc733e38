#include "exporter/http/responder.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "exporter/exposition/negotiation.h"
#include "exporter/node/realtime_clock.h"
#include "exporter/page/status_page.h"

namespace nccl_pulse {
namespace {

constexpr std::string_view kTextType = "text/plain; charset=utf-8";
constexpr std::string_view kJsonType = "application/json";
constexpr std::string_view kHtmlType = "text/html; charset=utf-8";

// The answer depends on these headers of the request.
constexpr std::string_view kVary = "Vary: Accept, Accept-Encoding\r\n";
constexpr std::string_view kVaryGzip =
    "Vary: Accept, Accept-Encoding\r\nContent-Encoding: gzip\r\n";

// What stands for an id in /api/v1/communicators/ID/calls; none: another path.
std::optional<std::string_view> CommunicatorOfCalls(std::string_view path) {
  if (!absl::ConsumePrefix(&path, "/api/v1/communicators/")) return std::nullopt;
  if (!absl::ConsumeSuffix(&path, "/calls")) return std::nullopt;
  return path;
}

// Made anew for each request, so that whoever asks can tell how far this clock is from theirs.
std::string TimeJson(int64_t realtime_ns) {
  const int64_t us = realtime_ns / 1000;
  return absl::StrCat("{\"time\":", us / 1000000, ".", absl::Dec(us % 1000000, absl::kZeroPad6),
                      "}\n");
}

}  // namespace

Responder::Responder(const ServerOptions* options, Pages* pages, const Node* node)
    : options_(*options),
      pages_(*pages),
      node_(*node),
      status_page_(std::make_shared<const std::string>(StatusPage())),
      healthy_(std::make_shared<const std::string>("ok\n")) {}

void Responder::AnswerRequests(Connection* connection, Time now) {
  // There are several if the client did not wait for the responses; at most as many as fit into one
  // input.
  while (connection->state() == Connection::State::kReading) {
    HttpRequest request;
    switch (connection->NextRequest(&request)) {
      case ParseResult::kIncomplete:
        return;
      case ParseResult::kBad:
        Respond(connection, HttpRequest(), connection->head_too_long() ? 431 : 400, kTextType,
                nullptr, now);
        break;
      case ParseResult::kOk:
        Answer(connection, request, now);
        break;
    }
  }
}

void Responder::AnswerParked(Connection* connection, Time now) {
  if (connection->state() != Connection::State::kParked) return;
  const HttpRequest request = connection->parked();
  Answer(connection, request, now);
  AnswerRequests(connection, now);
}

// False if the request must not be answered, or not yet.
bool Responder::Admit(Connection* connection, const HttpRequest& request, Time now) {
  if (options_.guard == nullptr) return true;
  switch (options_.guard->Check(request.authorization)) {
    case Guard::Verdict::kGranted:
      return true;
    case Guard::Verdict::kRefused:
      Respond(connection, request, 401, kTextType, nullptr, now);
      return false;
    case Guard::Verdict::kPending:
      connection->Park(request, now);
      return false;
  }
  return false;
}

void Responder::Answer(Connection* connection, const HttpRequest& request, Time now) {
  if (!Admit(connection, request, now)) return;
  if (request.method != HttpRequest::Method::kGet && request.method != HttpRequest::Method::kHead) {
    Respond(connection, request, 405, kTextType, nullptr, now);
  } else if (request.has_body) {
    Respond(connection, request, 413, kTextType, nullptr, now);
  } else if (request.path == "/metrics") {
    RespondPage(connection, request, static_cast<std::size_t>(NegotiateFormat(request.accept)),
                now);
  } else if (request.path == "/api/v1/communicators") {
    RespondPage(connection, request, Pages::kCommunicators, now);
  } else if (const std::optional<std::string_view> comm = CommunicatorOfCalls(request.path)) {
    RespondCalls(connection, request, *comm, now);
  } else if (request.path == "/api/v1/snapshots") {
    RespondPage(connection, request, Pages::kSnapshots, now);
  } else if (request.path == "/api/v1/http_sd") {
    Respond(connection, request, 200, kJsonType,
            std::make_shared<const std::string>(node_.ServiceTargets()), now);
  } else if (request.path == "/api/v1/time") {
    Respond(connection, request, 200, kJsonType,
            std::make_shared<const std::string>(TimeJson(RealtimeNs())), now);
  } else if (request.path == "/healthz") {
    Respond(connection, request, 200, kTextType, healthy_, now);
  } else if (request.path == "/") {
    Respond(connection, request, 200, kHtmlType, status_page_, now, StatusPageHeaders());
  } else {
    Respond(connection, request, 404, kTextType, nullptr, now);
  }
}

// Without a body the response repeats the status.
void Responder::Respond(Connection* connection, const HttpRequest& request, int status,
                        std::string_view type, Body body, Time now, std::string_view more) {
  if (body == nullptr) {
    body = std::make_shared<const std::string>(absl::StrCat(status, " ", StatusText(status), "\n"));
  }
  const bool keep_alive = request.keep_alive && !request.has_body;
  std::string head =
      ResponseHead(status, type, body->size(), keep_alive,
                   options_.guard != nullptr ? absl::StrCat(options_.guard->headers(), more)
                                             : std::string(more));
  if (request.method == HttpRequest::Method::kHead) body.reset();
  connection->Respond(std::move(head), std::move(body), keep_alive, now);
  // Most responses fit into the socket's buffer and need no further round.
  if (!connection->Send(now)) connection->Close();
}

void Responder::RespondPage(Connection* connection, const HttpRequest& request, std::size_t kind,
                            Time now) {
  RespondAnswer(connection, request, kind, pages_.Get(kind, NegotiateGzip(request.accept_encoding)),
                now);
}

void Responder::RespondCalls(Connection* connection, const HttpRequest& request,
                             std::string_view comm, Time now) {
  uint64_t id = 0;
  if (comm.size() != 16 || !std::all_of(comm.begin(), comm.end(), absl::ascii_isxdigit) ||
      !absl::SimpleHexAtoi(comm, &id)) {
    Respond(connection, request, 400, kTextType,
            std::make_shared<const std::string>(
                "400 Bad Request\na communicator's id has 16 hexadecimal digits\n"),
            now);
    return;
  }
  const PageCache::Answer answer = pages_.GetCalls(id, NegotiateGzip(request.accept_encoding));
  if (answer.status == 404) {
    Respond(connection, request, 404, kTextType,
            std::make_shared<const std::string>(
                "404 Not Found\nno communicator of this id is known here\n"),
            now);
    return;
  }
  RespondAnswer(connection, request, Pages::kCalls, answer, now);
}

void Responder::RespondAnswer(Connection* connection, const HttpRequest& request, std::size_t kind,
                              const PageCache::Answer& answer, Time now) {
  std::string more(answer.is_packed ? kVaryGzip : kVary);
  if (answer.age.count() > 0) absl::StrAppend(&more, "Age: ", answer.age.count(), "\r\n");
  if (answer.status == 503) {
    absl::StrAppend(&more, "Retry-After: ", answer.retry_after.count(), "\r\n");
  }
  const std::string_view type = answer.status == 200 ? Pages::TypeOf(kind) : kTextType;
  Respond(connection, request, answer.status, type, answer.body, now, more);
}

}  // namespace nccl_pulse
