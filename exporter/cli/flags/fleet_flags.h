// FleetFlags are the flags of all commands that query endpoints (`pulse help connect`): where the
// endpoints are and how to connect. ReadFleetFlags turns them into addresses and a client.
//
// Thread: any. Cost: reads the files named by flags; AddFromDirectories blocks within --timeout.
#ifndef EXPORTER_CLI_FLAGS_FLEET_FLAGS_H_
#define EXPORTER_CLI_FLAGS_FLEET_FLAGS_H_

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "exporter/cli/flags/flags.h"
#include "exporter/fleet/address.h"
#include "exporter/fleet/http_client.h"
#include "exporter/fleet/snapshot_union.h"

namespace nccl_pulse {

// Values of the flags; a process runs one command.
struct FleetFlags {
  std::vector<std::string> endpoints;  // --endpoint, and arguments
  std::string prometheus, targets, http_sd, dns;
  std::string job_id, comm, ras;
  bool https = false;
  bool enter_namespaces = false;
  TlsClientConfig tls;
  std::string credentials_file, bearer_file;
  std::string prometheus_credentials_file, prometheus_bearer_file, prometheus_header;
  absl::Duration timeout = absl::Seconds(3);
  std::optional<absl::Duration> hang_after;
};
extern FleetFlags fleet_flags;

// Rows that several commands print.
Flag HangAfterFlag();
FlagTable JobFlags();  // --job-id, --comm, --hang-after
Flag NamespacesFlag();
FlagTable RasFlags();     // --ras, --enter-namespaces
FlagTable AccessFlags();  // TLS and a password

// Rows that `pulse help connect` prints: of one endpoint, and of all commands that take many.
FlagTable EndpointFlags();
FlagTable ConnectFlags();

// Adds address arguments to the addresses of --endpoint. Returns false if one is a file name.
// `error` then names the flag for output, and `reading`, the flags for input.
bool AddAddresses(const std::vector<std::string>& arguments, const char* reading,
                  std::string* error);

struct FleetQuestion {
  std::vector<Address> endpoints;
  bool is_https = false;      // for addresses without http or https
  FleetClientOptions client;  // for the endpoints
  FleetClientOptions prometheus_client;
  // Set by OrThoseOfThisHost.
  bool is_this_host = false;    // no endpoint was given
  bool is_nobody_here = false;  // also, this host has no endpoint
  bool is_all_silent = false;   // also, no endpoint of this host gave data
};

// Reads how to connect, and whether addresses without a scheme are https. On failure returns false and sets `error`.
bool ReadClients(FleetQuestion* question, std::string* error);

// Like ReadClients; also reads the endpoints that flags and files name.
bool ReadFleetFlags(FleetQuestion* question, std::string* error);

// Reads --job-id and --comm. On failure returns false and sets `error`.
bool ReadFilter(JobFilter* filter, std::string* error);

// True if --prometheus, --http-sd or --dns is given.
bool IsDirectoryNamed();
// Adds the job's endpoints from these directories; from a directory that does not know jobs, all
// its endpoints. On failure returns false and sets `error`.
bool AddFromDirectories(const JobFilter& filter, FleetQuestion* question, std::string* error);

// Returns --hang-after; nothing if absent, and the command uses its own default.
std::optional<std::chrono::milliseconds> HangAfter();

// Removes duplicates, keeping the first of each.
void KeepDifferent(std::vector<Address>* endpoints);

// False, with the reason in `error`, if an endpoint speaks https and this machine trusts no
// certificate authorities.
bool HasAuthorities(const FleetQuestion& question, std::string* error);

// If no endpoint was given: adds the endpoints of this host, by polling ports 9410 to 9417. Then
// calls KeepDifferent and HasAuthorities. On failure returns false and sets `error`.
bool OrThoseOfThisHost(FleetQuestion* question, std::string* error);

// Call if no endpoint answered. Prints how to find the address, and which ports of this host were
// tried if none was given (`is_nobody_here`). Returns `status`.
int FailUnheard(int status, bool is_nobody_here);

// Reports that a written file lacks calls of live ranks, or that endpoints did not answer, and
// returns `status`. Returns 0 if nothing is missing.
int FailIncomplete(int status, std::size_t missing_ranks, std::size_t silent_endpoints);

}  // namespace nccl_pulse

#endif  // EXPORTER_CLI_FLAGS_FLEET_FLAGS_H_
