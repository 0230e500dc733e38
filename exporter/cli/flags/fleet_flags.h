// FleetFlags are the flags of all commands that query endpoints: where the endpoints are and how to
// connect to them (`pulse help connect`). ReadFleetFlags turns them into addresses and clients.
//
// Thread: any. Cost: reads the files that flags name; AddFromDirectories blocks within --timeout.
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

// Values of the flags, each named as its flag (fleet_flags.cc has their help). One global suffices:
// a process runs one command.
struct FleetFlags {
  std::vector<std::string> endpoints;  // --endpoint, and addresses given as arguments
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

// Rows of the tables of several commands.
Flag HangAfterFlag();
FlagTable JobFlags();  // --job-id, --comm, --hang-after
Flag NamespacesFlag();
FlagTable RasFlags();     // --ras, --enter-namespaces
FlagTable AccessFlags();  // TLS and a password

// Rows that `pulse help connect` prints.
FlagTable EndpointFlags();  // for `pulse status`, which takes one endpoint
FlagTable ConnectFlags();   // for commands that take many; includes EndpointFlags

// Adds the arguments, which must be addresses, to `fleet_flags.endpoints`. If one is a file name,
// returns false; `error` then says which flags take files. `reading`: the command's flags that read
// files, such as "addresses to --targets".
bool AddAddresses(const std::vector<std::string>& arguments, const char* reading,
                  std::string* error);

// Endpoints to query, and how to connect to them.
struct FleetQuestion {
  std::vector<Address> endpoints;
  bool is_https = false;      // for addresses without http or https
  FleetClientOptions client;  // for the endpoints
  FleetClientOptions prometheus_client;
  // Set by DefaultToThisHost. The last two are only set together with the first.
  bool is_this_host = false;    // no endpoint was given, so this host's are queried
  bool is_nobody_here = false;  // this host has no endpoint
  bool is_all_silent = false;   // this host has endpoints, but none gave data
};

// Reads how to connect, and whether addresses without a scheme are https. On failure returns false
// and sets `error`.
bool ReadClients(FleetQuestion* question, std::string* error);

// Like ReadClients; also reads the endpoints that flags and files name.
bool ReadFleetFlags(FleetQuestion* question, std::string* error);

// Reads --job-id and --comm. On failure returns false and sets `error`.
bool ReadFilter(JobFilter* filter, std::string* error);

// True if --prometheus, --http-sd or --dns is given.
bool IsDirectoryNamed();
// Adds the endpoints that the directories (--prometheus, --http-sd, --dns) list: of the job in
// `filter` if the directory knows jobs, else all. On failure returns false and sets `error`.
bool AddFromDirectories(const JobFilter& filter, FleetQuestion* question, std::string* error);

std::optional<std::chrono::milliseconds> HangAfter();

// Removes duplicates, keeping the first of each.
void KeepDifferent(std::vector<Address>* endpoints);

// Returns false, with the reason in `error`, if an endpoint speaks https and no client for TLS
// could be made, usually because this machine trusts no certificate authorities.
bool HasAuthorities(const FleetQuestion& question, std::string* error);

// If `question` has no endpoint, adds this host's, found by polling ports 9410 to 9417. In any case
// calls KeepDifferent and HasAuthorities. On failure returns false and sets `error`.
bool DefaultToThisHost(FleetQuestion* question, std::string* error);

// Call if no endpoint answered. Prints where to find an endpoint's address and, if
// `is_nobody_here`, that this host's ports were tried. Returns `status`.
int FailUnheard(int status, bool is_nobody_here);

// Reports that a written file lacks calls of live ranks, or that endpoints did not answer, and
// returns `status`. Returns 0 if nothing is missing.
int FailIncomplete(int status, std::size_t missing_ranks, std::size_t silent_endpoints);

}  // namespace nccl_pulse

#endif  // EXPORTER_CLI_FLAGS_FLEET_FLAGS_H_
