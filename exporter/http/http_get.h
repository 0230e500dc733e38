// One GET request, for the command line. Blocks, within a time limit.
//
// Thread: any, no state. Errors: `error` says what went wrong, for a person.
#ifndef EXPORTER_HTTP_HTTP_GET_H_
#define EXPORTER_HTTP_HTTP_GET_H_

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "exporter/http/transport.h"

namespace nccl_pulse {

struct HttpAnswer {
  int status = 0;
  std::string body;             // unpacked
  std::chrono::seconds age{0};  // as the server says it
};

// What an endpoint that is not open to everybody asks for.
struct HttpAccess {
  std::string authorization;  // the header's value; "": none
  // Makes the transport of a connected socket: TLS. Null: none.
  std::function<std::unique_ptr<Transport>(int fd, const std::string& host)> secure;
};

// `endpoint`: "host:port", ":port" or "port" (this machine), "unix:/path"; "http://" before and a
// path behind are allowed. False when nobody answers within `patience`, or with something that is
// not HTTP, or more than 512 MiB. A server that says when to come back (503, Retry-After) is asked
// once more then, if that is within `patience`.
bool HttpGet(std::string_view endpoint, std::string_view path, std::chrono::milliseconds patience,
             HttpAnswer* answer, std::string* error, const HttpAccess& access = {});

}  // namespace nccl_pulse

#endif  // EXPORTER_HTTP_HTTP_GET_H_
