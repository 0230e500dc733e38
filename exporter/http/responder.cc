#include "exporter/http/responder.h"

#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace nccl_pulse {
namespace {

bool IsPost(const Handler* handler) { return handler != nullptr && handler->most_body_bytes != 0; }

// Returns the page for an unknown path: the list of handlers.
std::string NotFound(const std::vector<Handler>& handlers) {
  std::string text = "404 Not Found\n\n";
  for (const Handler& each : handlers) {
    if (each.help.empty()) continue;
    absl::StrAppend(&text, IsPost(&each) ? "POST " : "", each.path, "  ", each.help, "\n");
  }
  return text;
}

}  // namespace

Responder::Responder(const std::vector<Handler>* handlers, Guard* guard)
    : handlers_(*handlers),
      guard_(guard),
      not_found_(std::make_shared<const std::string>(NotFound(*handlers))) {}

const Handler* Responder::Find(std::string_view path) const {
  for (const Handler& each : handlers_) {
    const bool is_folder = each.path.size() > 1 && absl::EndsWith(each.path, "/");
    if (is_folder ? absl::StartsWith(path, each.path) : path == each.path) return &each;
  }
  return nullptr;
}

void Responder::AnswerRequests(Connection* connection, Time now) {
  // Clients may send several requests without waiting; at most as many as fit into one input.
  while (connection->state() == Connection::State::kReading) {
    HttpRequest request;
    switch (connection->NextRequest(&request)) {
      case ParseResult::kIncomplete:
        return;
      case ParseResult::kBad:
        Respond(connection, HttpRequest(), {connection->head_too_long() ? 431 : 400}, now);
        break;
      case ParseResult::kOk:
        if (!TakeBody(connection, &request, now)) return;
        Answer(connection, request, now);
        break;
    }
  }
}

// Returns false if the body is incomplete, or has been refused.
bool Responder::TakeBody(Connection* connection, HttpRequest* request, Time now) {
  const Handler* const handler = Find(request->path);
  const bool takes_it =
      IsPost(handler) && request->method == HttpRequest::Method::kPost && request->has_body;
  if (!takes_it) {
    connection->Consume(request->head_bytes);
    return true;
  }
  if (request->body_bytes == 0 || request->body_bytes > handler->most_body_bytes) {
    Respond(connection, *request, {request->body_bytes == 0 ? 411 : 413}, now);
    return false;
  }
  if (connection->input().size() < request->head_bytes + request->body_bytes) return false;
  request->body = connection->input().substr(request->head_bytes, request->body_bytes);
  connection->Consume(request->head_bytes + request->body_bytes);
  return true;
}

void Responder::AnswerParked(Connection* connection, Time now) {
  if (connection->state() != Connection::State::kParked) return;
  const HttpRequest request = connection->parked();
  Answer(connection, request, now);
  AnswerRequests(connection, now);
}

// Returns false if the request was refused or parked.
bool Responder::Admit(Connection* connection, const HttpRequest& request, Time now) {
  if (guard_ == nullptr) return true;
  switch (guard_->Check(request.authorization, connection->fd())) {
    case Guard::Verdict::kGranted:
      return true;
    case Guard::Verdict::kRefused:
      Respond(connection, request, {401}, now);
      return false;
    case Guard::Verdict::kPending:
      connection->Park(request, now);
      return false;
  }
  return false;
}

void Responder::Answer(Connection* connection, const HttpRequest& request, Time now) {
  if (!Admit(connection, request, now)) return;
  const Handler* const handler = Find(request.path);
  using Method = HttpRequest::Method;
  const bool is_method_right =
      IsPost(handler) ? request.method == Method::kPost
                      : request.method == Method::kGet || request.method == Method::kHead;
  if (!is_method_right) {
    HttpResponse response = {405};
    response.headers = IsPost(handler) ? "Allow: POST\r\n" : "Allow: GET, HEAD\r\n";
    Respond(connection, request, std::move(response), now);
  } else if (request.has_body && request.body.empty()) {
    Respond(connection, request, {413}, now);
  } else if (handler == nullptr) {
    Respond(connection, request, {404, kTextType, not_found_}, now);
  } else if (std::optional<HttpResponse> response = handler->answer(request)) {
    Respond(connection, request, *std::move(response), now);
  } else {
    connection->Park(request, now);
  }
}

// Sends a response. Without a body it repeats the status.
void Responder::Respond(Connection* connection, const HttpRequest& request, HttpResponse response,
                        Time now) {
  std::shared_ptr<const std::string> body = std::move(response.body);
  if (body == nullptr) {
    body = std::make_shared<const std::string>(
        absl::StrCat(response.status, " ", StatusText(response.status), "\n"));
  }
  const bool keep_alive = request.keep_alive && !request.has_body;
  std::string head = ResponseHead(
      response.status, response.type, body->size(), keep_alive,
      guard_ != nullptr ? absl::StrCat(guard_->headers(), response.headers) : response.headers);
  if (request.method == HttpRequest::Method::kHead) body.reset();
  connection->Respond(std::move(head), std::move(body), keep_alive, now);
  // Most responses fit into the socket's buffer and need no further round.
  if (!connection->Send(now)) connection->Close();
}

}  // namespace nccl_pulse
