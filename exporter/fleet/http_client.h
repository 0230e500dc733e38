// Sends one GET to many servers at once, from one poll loop.
//
// Each server has its own time limit, and failures are worded for people. No redirect is followed.
// Answers are limited one by one and together, packed and unpacked: if they exceed the limit
// together, the longest that is not complete yet is dropped, and the others go on. A server is sent
// one request at a time; after one that failed, or that it stayed busy for, it is not sent the rest,
// which fail alike. A busy server (503) is asked again when it says so (Retry-After).
//
// Thread: the caller's; blocks until all have answered or failed. Memory: `most_bytes_together`;
// each answer is handed on when it is complete.
#ifndef EXPORTER_FLEET_HTTP_CLIENT_H_
#define EXPORTER_FLEET_HTTP_CLIENT_H_

#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "exporter/base/work_budget.h"
#include "exporter/fleet/address.h"
#include "exporter/web/tls_client.h"

namespace nccl_pulse {

struct FleetRequest {
  Address address;
  std::string target;  // behind the address' path: "/api/v1/snapshots"
};

struct FleetAnswer {
  std::string error;             // "" when there is an answer of HTTP
  bool is_connected = false;     // the server took the connection
  bool had_credentials = false;  // the request had
  int status = 0;
  std::string body;             // unpacked
  std::chrono::seconds age{0};  // as the server says it
};

struct FleetClientOptions {
  std::chrono::milliseconds patience{3000};  // of each, from its turn on
  // Until when a busy server is asked again; nothing: within the patience of the request.
  std::optional<std::chrono::steady_clock::time_point> retry_until;
  std::function<void()> on_busy;            // called each time that a server is asked again later
  const std::atomic<bool>* stop = nullptr;  // once set, requests without an answer fail
  std::size_t most_bytes = 8 << 20;         // of an answer on the wire
  std::size_t most_unpacked_bytes = 48 << 20;
  std::size_t most_bytes_together = std::size_t{256} << 20;  // of all answers, and one unpacked
  std::size_t most_at_once = 2048;  // less where the process may not have as many descriptors
  std::string authorization;        // that header's value; "": none
  std::string header;               // one more line, "NAME: VALUE"; "": none
  WorkBudget* budget = nullptr;     // unpacking counts against it; null: no limit
  // For https. Null where no address is.
  std::shared_ptr<const TlsClient> tls;
};

// `done` is called once for each request, in the order of the answers.
using AskFunction =
    std::function<void(const std::vector<FleetRequest>& requests, const FleetClientOptions& options,
                       const std::function<void(std::size_t index, FleetAnswer answer)>& done)>;
void AskAll(const std::vector<FleetRequest>& requests, const FleetClientOptions& options,
            const std::function<void(std::size_t index, FleetAnswer answer)>& done);

// Asks one server.
FleetAnswer Ask(const Address& address, const std::string& target,
                const FleetClientOptions& options);

// Returns why a server did not answer a request for this path, with the reason that it gives; "": it
// did, with status 200.
std::string ProblemOf(const FleetAnswer& answer, std::string_view path);

}  // namespace nccl_pulse

#endif  // EXPORTER_FLEET_HTTP_CLIENT_H_
