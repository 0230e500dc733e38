// Defines a server's table of handlers, each with a path, a line of help and a function. The loop
// knows nothing else about the served content.
//
// Thread: server thread only.
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
  std::string_view type = kTextType;          // must outlive the server
  std::shared_ptr<const std::string> body{};  // null: the status in words ("404 Not Found")
  std::string headers{};                      // further header lines, each with its CR LF
};

inline HttpResponse TextResponse(int status, std::string text, std::string_view type = kTextType) {
  return {status, type, std::make_shared<const std::string>(std::move(text))};
}

struct Handler {
  // A path; if it ends in a slash, all paths below it. "/" is a single path.
  std::string_view path;
  std::string_view help;  // "" for a path that another handler's help covers
  // Must not block. Returns empty if the answer is not ready: the request then waits, and the
  // handler is called again when ServerLoop::Options::ready is signaled.
  std::function<std::optional<HttpResponse>(const HttpRequest&)> answer;
  // 0: answers GET and HEAD. Otherwise answers POST, with a body of at most this many bytes.
  std::size_t most_body_bytes = 0;
};

}  // namespace nccl_pulse

#endif  // EXPORTER_HTTP_HANDLER_H_
