// One GET of many servers at once, from one poll loop: each has its own time limit, an answer has a
// largest size, and failures are worded for people. No redirect is followed.
//
// Thread: the caller's; blocks until all have answered or failed. Memory: what is being received,
// at most `most_at_once` answers; each is handed on when it is there.
#ifndef EXPORTER_FLEET_HTTP_CLIENT_H_
#define EXPORTER_FLEET_HTTP_CLIENT_H_

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "exporter/fleet/address.h"
#include "exporter/web/tls_client.h"

namespace nccl_pulse {

struct FleetRequest {
  Address address;
  std::string target;  // behind the address' path: "/api/v1/snapshots"
};

struct FleetAnswer {
  std::string error;          // "" when there is an answer of HTTP
  bool is_connected = false;  // the server took the connection
  int status = 0;
  std::string body;             // unpacked
  std::chrono::seconds age{0};  // as the server says it
};

struct FleetClientOptions {
  std::chrono::milliseconds patience{3000};  // of each, from its turn on
  std::size_t most_bytes = 8 << 20;          // of an answer on the wire
  std::size_t most_unpacked_bytes = 48 << 20;
  std::size_t most_at_once = 2048;  // less where the process may not have as many descriptors
  std::string authorization;        // that header's value; "": none
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

// Says why an endpoint did not answer when it was asked for this path; "": it did, with status 200.
std::string ProblemOf(const FleetAnswer& answer, std::string_view path);

}  // namespace nccl_pulse

#endif  // EXPORTER_FLEET_HTTP_CLIENT_H_
