// A GET request, for the command line. Blocks, within a time.
//
// Thread: any, no state. Errors: `error` says what went wrong, for a person.
#ifndef EXPORTER_HTTP_HTTP_GET_H_
#define EXPORTER_HTTP_HTTP_GET_H_

#include <chrono>
#include <string>
#include <string_view>

namespace nccl_pulse {

struct HttpAnswer {
  int status = 0;
  std::string body;             // unpacked
  std::chrono::seconds age{0};  // as the server says it
};

// `endpoint`: "host:port", ":port" or "port" (this machine), "unix:/path"; "http://" before and a
// path behind are allowed. False when nobody answers within `patience`, or with something that is
// not HTTP, or more than 512 MiB. A server that says when to come back (503, Retry-After) is asked
// once more then, if that is within `patience`.
bool HttpGet(std::string_view endpoint, std::string_view path, std::chrono::milliseconds patience,
             HttpAnswer* answer, std::string* error);

}  // namespace nccl_pulse

#endif  // EXPORTER_HTTP_HTTP_GET_H_
