// Sends one GET to many servers at once, from one poll loop.
//
// Each request has its own time limit, and error texts are for people. No redirect is followed. The
// size of each answer and of all together is limited, packed (gzip) and unpacked. If all together
// exceed their limit, the longest incomplete answer is dropped, and the others continue. A server
// gets one request at a time. A busy server (503) is asked again at its Retry-After. If a
// request fails, or the server stays busy, its further requests get the same answer, unsent.
//
// Thread: the caller's; blocks until all have answered or failed. Memory: `most_bytes_together`;
// each complete answer is passed on at once.
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

#include "exporter/base/cpu_budget.h"
#include "exporter/fleet/address.h"
#include "exporter/web/tls_client.h"

namespace nccl_pulse {

struct FleetRequest {
  Address address;
  std::string target;  // appended to the address' path: "/api/v1/snapshots"
};

struct FleetAnswer {
  std::string error;             // "": there is an HTTP answer
  bool is_connected = false;     // the server accepted the connection
  bool had_credentials = false;  // the request carried credentials
  int status = 0;
  std::string body;             // unpacked
  std::chrono::seconds age{0};  // value of the header Age
};

struct FleetClientOptions {
  std::chrono::milliseconds patience{3000};  // per request, from its start
  // When to stop retrying at busy servers; none: when the request's patience ends.
  std::optional<std::chrono::steady_clock::time_point> retry_until;
  std::function<void()> on_busy;            // called for each retry
  const std::atomic<bool>* stop = nullptr;  // once set, requests without an answer fail
  std::size_t most_bytes = 8 << 20;         // per answer on the wire
  std::size_t most_unpacked_bytes = 48 << 20;
  std::size_t most_bytes_together = std::size_t{256} << 20;  // all as received, and one unpacked
  std::size_t most_at_once = 2048;  // connections; fewer if the process may not open as many
  std::string authorization;        // value of the header; "": none
  std::string header;               // a further header, "NAME: VALUE"; "": none
  WorkBudget* budget = nullptr;     // unpacking counts against it; null: no limit
  // Required for https; else null.
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

// Returns why a request for this path failed, with the server's own reason; "" for status 200.
std::string ProblemOf(const FleetAnswer& answer, std::string_view path);

}  // namespace nccl_pulse

#endif  // EXPORTER_FLEET_HTTP_CLIENT_H_
