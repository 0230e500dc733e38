// The little of HTTP/1.x that an endpoint needs: parsing the head of a request and writing the head
// of a response. No I/O here.
//
// What is not understood is refused, never guessed: folded header lines and stray control
// characters are bad requests.
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
  std::string path;            // without query; as the client spelled it
  std::string query;           // behind the question mark, "" without one
  std::string authorization;   // that header's value, "" without it
  bool keep_alive = false;     // the client will take another response on this connection
  bool has_body = false;       // announced; the bytes after the head are not a request
  std::size_t body_bytes = 0;  // of it, as announced; 0: not known
  std::size_t head_bytes = 0;
  std::string body;  // where a handler takes one
  // Values of these headers, "" without; several lines of one are joined with ", ".
  std::string accept;
  std::string accept_encoding;
  std::string host;
};

enum class ParseResult {
  kOk,
  kIncomplete,  // so far a request, but its head has not ended
  kBad,         // can never become a request: answer 400
};

// Parses the request at the start of `input`. Lines may end in CR LF or LF. Cost: linear in the
// head.
ParseResult ParseRequest(std::string_view input, HttpRequest* request);

// Head of a response, ending in its empty line. 401 says how to authenticate. `more`: further
// header lines, each with its CR LF.
std::string ResponseHead(int status, std::string_view content_type, std::size_t body_bytes,
                         bool keep_alive, std::string_view more = "");

// "Not Found" for 404; the statuses that this endpoint uses.
std::string_view StatusText(int status);

}  // namespace nccl_pulse

#endif  // EXPORTER_HTTP_HTTP_H_
