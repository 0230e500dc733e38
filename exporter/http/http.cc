#include "exporter/http/http.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace nccl_pulse {
namespace {

// True if `line` has no control characters. Bytes beyond ASCII may occur in a header's value.
bool IsPlain(std::string_view line) {
  return std::all_of(line.begin(), line.end(), [](char c) {
    return c == '\t' || (static_cast<unsigned char>(c) >= 0x20 && c != 0x7f);
  });
}

// Cuts the first line off `text`. Returns false if no line has ended yet.
bool TakeLine(std::string_view* text, std::string_view* line) {
  const std::size_t end = text->find('\n');
  if (end == text->npos) return false;
  *line = absl::StripSuffix(text->substr(0, end), "\r");
  text->remove_prefix(end + 1);
  return true;
}

bool HasToken(std::string_view list, std::string_view token) {
  while (!list.empty()) {
    const std::size_t comma = std::min(list.find(','), list.size());
    if (absl::EqualsIgnoreCase(absl::StripAsciiWhitespace(list.substr(0, comma)), token))
      return true;
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
  return false;
}

// Accepts "/metrics?x=y", or "http://host:9410/metrics" from a client that takes this server for a
// proxy.
bool TakePath(std::string_view target, HttpRequest* request) {
  constexpr std::string_view kScheme = "http://";
  if (absl::StartsWithIgnoreCase(target, kScheme)) {
    target.remove_prefix(kScheme.size());
    target.remove_prefix(std::min(target.find('/'), target.size()));
    if (target.empty()) target = "/";
  }
  if (target.empty() || target[0] != '/') return false;
  const std::size_t mark = std::min(target.find('?'), target.size());
  request->path = std::string(target.substr(0, mark));
  if (mark < target.size()) request->query = std::string(target.substr(mark + 1));
  return true;
}

bool ParseRequestLine(std::string_view line, HttpRequest* request) {
  const std::size_t first = line.find(' ');
  const std::size_t last = line.rfind(' ');
  if (first == line.npos || first == 0 || first == last) return false;
  const std::string_view method = line.substr(0, first);
  const std::string_view target = line.substr(first + 1, last - first - 1);
  const std::string_view version = line.substr(last + 1);
  if (!std::all_of(method.begin(), method.end(), absl::ascii_isupper)) return false;
  if (target.find(' ') != target.npos) return false;
  if (version != "HTTP/1.1" && version != "HTTP/1.0") return false;
  request->keep_alive = version == "HTTP/1.1";
  request->method = method == "GET"    ? HttpRequest::Method::kGet
                    : method == "HEAD" ? HttpRequest::Method::kHead
                    : method == "POST" ? HttpRequest::Method::kPost
                                       : HttpRequest::Method::kOther;
  // Other methods have targets of other forms. They are refused whatever the target is.
  return TakePath(target, request) || request->method == HttpRequest::Method::kOther;
}

// Repeated headers form one list (RFC 9110, 5.3).
void AppendToList(std::string_view value, std::string* list) {
  absl::StrAppend(list, list->empty() ? "" : ", ", value);
}

bool ParseHeaderLine(std::string_view line, HttpRequest* request) {
  const std::size_t colon = line.find(':');
  if (colon == line.npos || colon == 0) return false;
  const std::string_view name = line.substr(0, colon);
  if (name.find_first_of(" \t") != name.npos) return false;  // also refuses a folded line
  const std::string_view value = absl::StripAsciiWhitespace(line.substr(colon + 1));
  if (absl::EqualsIgnoreCase(name, "connection")) {
    if (HasToken(value, "close")) request->keep_alive = false;
  } else if (absl::EqualsIgnoreCase(name, "content-length")) {
    if (value != "0") {
      // Announced twice, or not a number: size unknown.
      if (request->has_body || !absl::SimpleAtoi(value, &request->body_bytes)) {
        request->body_bytes = 0;
      }
      request->has_body = true;
    }
  } else if (absl::EqualsIgnoreCase(name, "transfer-encoding")) {
    request->has_body = true;
    request->body_bytes = 0;
  } else if (absl::EqualsIgnoreCase(name, "accept")) {
    AppendToList(value, &request->accept);
  } else if (absl::EqualsIgnoreCase(name, "accept-encoding")) {
    AppendToList(value, &request->accept_encoding);
  } else if (absl::EqualsIgnoreCase(name, "host")) {
    AppendToList(value, &request->host);
  } else if (absl::EqualsIgnoreCase(name, "authorization")) {
    if (request->authorization.empty()) request->authorization = std::string(value);
  }
  return true;
}

}  // namespace

ParseResult ParseRequest(std::string_view input, HttpRequest* request) {
  *request = HttpRequest();
  std::string_view rest = input;
  // Empty lines before a request must be ignored (RFC 9112, 2.2).
  while (!rest.empty() && (rest[0] == '\r' || rest[0] == '\n')) rest.remove_prefix(1);
  if (rest.empty()) return ParseResult::kIncomplete;
  // Methods are in capitals, so the first byte distinguishes a TLS greeting from a slow client.
  if (!absl::ascii_isupper(rest[0])) return ParseResult::kBad;

  std::string_view line;
  if (!TakeLine(&rest, &line)) return ParseResult::kIncomplete;
  if (!IsPlain(line) || !ParseRequestLine(line, request)) return ParseResult::kBad;
  while (TakeLine(&rest, &line)) {
    if (line.empty()) {
      request->head_bytes = input.size() - rest.size();
      return ParseResult::kOk;
    }
    if (!IsPlain(line) || !ParseHeaderLine(line, request)) return ParseResult::kBad;
  }
  return ParseResult::kIncomplete;
}

std::string_view StatusText(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 411:
      return "Length Required";
    case 413:
      return "Content Too Large";
    case 431:
      return "Request Header Fields Too Large";
    case 503:
      return "Service Unavailable";
    default:
      return "Internal Server Error";
  }
}

std::string ResponseHead(int status, std::string_view content_type, std::size_t body_bytes,
                         bool keep_alive, std::string_view more) {
  return absl::StrCat("HTTP/1.1 ", status, " ", StatusText(status),
                      "\r\nContent-Type: ", content_type, "\r\nContent-Length: ", body_bytes,
                      "\r\nConnection: ", keep_alive ? "keep-alive" : "close",
                      status == 401 ? "\r\nWWW-Authenticate: Basic" : "", "\r\n", more, "\r\n");
}

}  // namespace nccl_pulse
