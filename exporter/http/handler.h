// What a server answers, as a table: each handler has the paths that it answers, a line of help and
// a function. The loop knows nothing else about what it serves.
//
// Thread: the server's.
#ifndef EXPORTER_HTTP_HANDLER_H_
#define EXPORTER_HTTP_HANDLER_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "exporter/http/http.h"

namespace nccl_pulse {

inline constexpr std::string_view kTextType = "text/plain; charset=utf-8";
inline constexpr std::string_view kHtmlType = "text/html; charset=utf-8";
inline constexpr std::string_view kJsonType = "application/json";

struct HttpResponse {
  int status = 200;
  std::string_view type = kTextType;          // text that outlives the server
  std::shared_ptr<const std::string> body{};  // null: the status in words
  std::string headers{};                      // further lines, each with its CR LF
};

inline HttpResponse TextResponse(int status, std::string text, std::string_view type = kTextType) {
  return {status, type, std::make_shared<const std::string>(std::move(text))};
}

struct Handler {
  // One path; or, when it ends in a slash, all paths below it. "/" is one path.
  std::string_view path;
  std::string_view help;  // "" for a path that its sibling's help covers
  // Must not block. Nothing: the answer is not there yet. The request is kept, and the handler is
  // asked again when ServerLoop::Options::ready says so.
  std::function<std::optional<HttpResponse>(const HttpRequest&)> answer;
  // 0: it answers GET and HEAD. Otherwise it answers POST, with a body of at most so many bytes.
  std::size_t most_body_bytes = 0;
};

}  // namespace nccl_pulse

#endif  // EXPORTER_HTTP_HANDLER_H_
