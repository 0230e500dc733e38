// Parses request heads and writes response heads: the subset of HTTP/1.x that an endpoint needs.
// Does no I/O.
//
// Refuses unsupported syntax: folded header lines and stray control characters are bad requests.
//
// Thread: any, no state.
#ifndef EXPORTER_HTTP_HTTP_H_
#define EXPORTER_HTTP_HTTP_H_

#include <cstddef>
#include <string>
#include <string_view>

namespace nccl_pulse {

struct HttpRequest {
  enum class Method { kGet, kHead, kPost, kOther };

  Method method = Method::kOther;
  std::string path;            // without query; not decoded
  std::string query;           // after the question mark, "" without one
  std::string authorization;   // that header's value, "" without it
  bool keep_alive = false;     // the client will take another response on this connection
  bool has_body = false;       // announced by a header; the bytes after the head are not a request
  std::size_t body_bytes = 0;  // as announced; 0: not known
  std::size_t head_bytes = 0;
  std::string body;  // filled in only if the handler takes a body
  // Values of these headers; "" if missing. Repeated headers are joined with ", ".
  std::string accept;
  std::string accept_encoding;
  std::string host;
};

enum class ParseResult {
  kOk,
  kIncomplete,  // valid so far, but the head has not ended
  kBad,         // not a request: answer 400
};

// Parses the request at the start of `input`. Lines may end in CR LF or LF. Cost: linear in the
// head.
ParseResult ParseRequest(std::string_view input, HttpRequest* request);

// Returns the head of a response, including its empty line. With 401 it has the header
// WWW-Authenticate. `more`: further header lines, each with its CR LF.
std::string ResponseHead(int status, std::string_view content_type, std::size_t body_bytes,
                         bool keep_alive, std::string_view more = "");

// Returns the reason phrase, such as "Not Found" for 404. Knows only the statuses that this
// endpoint uses.
std::string_view StatusText(int status);

}  // namespace nccl_pulse

#endif  // EXPORTER_HTTP_HTTP_H_
