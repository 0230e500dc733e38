// A GET request, for the command line. Blocks, within a time.
//
// Thread: any, no state. Errors: `error` says what went wrong, for a person.
#ifndef EXPORTER_HTTP_GET_H_
#define EXPORTER_HTTP_GET_H_

#include <chrono>
#include <string>
#include <string_view>

namespace nccl_pulse {

struct HttpAnswer {
  int status = 0;
  std::string body;
};

// `endpoint`: "host:port", ":port" or "port" (this machine), "unix:/path"; "http://" before and a
// path behind are allowed. False when nobody answers within `patience`, or with something that is
// not HTTP.
bool HttpGet(std::string_view endpoint, std::string_view path, std::chrono::milliseconds patience,
             HttpAnswer* answer, std::string* error);

}  // namespace nccl_pulse

#endif  // EXPORTER_HTTP_GET_H_
