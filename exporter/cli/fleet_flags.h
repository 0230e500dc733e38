// What the commands that ask endpoints have in common (`pulse help connect`): the flags that say
// where the endpoints are and how to get in, and how these become addresses and a client.
//
// Thread: any. Cost: reads the files that the flags name;
// AddFromDirectories blocks within --timeout.
#ifndef EXPORTER_CLI_FLEET_FLAGS_H_
#define EXPORTER_CLI_FLEET_FLAGS_H_

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "exporter/cli/flags.h"
#include "exporter/fleet/address.h"
#include "exporter/fleet/http_client.h"
#include "exporter/fleet/snapshot_union.h"

namespace nccl_pulse {

// Prints the text as an error and returns the status. The text may contain what an endpoint or a
// Prometheus said: nothing in it controls the terminal.
int Fail(int status, const std::string& text);

// Where the values of these flags go: one command runs in a process.
struct FleetFlags {
  std::vector<std::string> endpoints;  // --endpoint, and addresses without it
  std::string prometheus, targets, http_sd, dns;
  std::string job_id, comm, ras;
  bool https = false;
  TlsClientConfig tls;
  std::string credentials_file, bearer_file;
  std::string prometheus_credentials_file, prometheus_bearer_file, prometheus_header;
  absl::Duration timeout = absl::Seconds(3);
  std::optional<absl::Duration> hang_after;
};
extern FleetFlags fleet_flags;

// A command names the groups of these flags that it takes.
enum FleetFlagGroup : unsigned {
  kAccessFlags = 1,  // TLS and a password
  kClientFlags = 2,  // what a client of any endpoint needs beside
  kFindFlags = 4,    // many endpoints, and --hang-after
  kJobFlags = 8,
};
constexpr unsigned kFleetFlags = kAccessFlags | kClientFlags | kFindFlags;

// Returns `own`, and behind them the flags of these groups.
std::vector<Flag> WithFleetFlags(unsigned groups, std::vector<Flag> own);

// Adds arguments, which are addresses, to those of --endpoint. False, with the reason in `error`,
// if one is the name of a file: it says which flag takes one to write, and `reading` which takes
// those to read.
bool AddAddresses(const std::vector<std::string>& arguments, const char* reading,
                  std::string* error);

struct FleetQuestion {
  std::vector<Address> endpoints;
  bool is_https = false;      // where an address does not say http or https
  FleetClientOptions client;  // for the endpoints
  FleetClientOptions prometheus_client;
  // Set by OrThoseOfThisHost: no endpoint was named.
  bool is_this_host = false;
  bool is_nobody_here = false;  // and none of this host answered
};

// Reads the flags of kAccessFlags and kClientFlags, and says whether addresses without a scheme are
// of https. On failure returns false and says in `error` what is wrong.
bool ReadClients(FleetQuestion* question, std::string* error);

// Also reads the endpoints, but those of directories. On failure returns false and
// says in `error` what is wrong.
bool ReadFleetFlags(FleetQuestion* question, std::string* error);

// --job-id and --comm; the same for failures.
bool ReadFilter(JobFilter* filter, std::string* error);

// Whether --prometheus, --http-sd or --dns says where the endpoints are.
bool IsDirectoryNamed();
// Adds the endpoints that these know of the job; all, where they cannot tell jobs apart. On failure
// returns false and says in `error` what is wrong.
bool AddFromDirectories(const JobFilter& filter, FleetQuestion* question, std::string* error);

// --hang-after; nothing where it was not given. Without it each command goes by what it knows better.
// False, with the reason in `error`, if it is not between a second and `most`.
bool ReadHangAfter(std::chrono::hours most, std::optional<std::chrono::milliseconds>* hang_after,
                   std::string* error);

// Keeps the first of each, in their order.
void KeepDifferent(std::vector<Address>* endpoints);

// False, with the reason in `error`, if an endpoint speaks https and this machine has no
// certificate authorities to trust.
bool HasAuthorities(const FleetQuestion& question, std::string* error);

// Where no endpoint was named: those of this host, at the ports 9410 to 9417, which are asked for
// that. Then as KeepDifferent and HasAuthorities. On failure returns false and says in `error` what
// is wrong.
bool OrThoseOfThisHost(FleetQuestion* question, std::string* error);

// When nobody has answered: prints how to find the right address, and where this host was asked if
// no address was given (`is_nobody_here`). Returns the status.
int FailUnheard(int status, bool is_nobody_here);

// When a file that was written lacks the calls of live ranks, or endpoints have not answered: says
// so, and returns the status. 0: nothing is missing.
int FailIncomplete(int status, std::size_t missing_ranks, std::size_t silent_endpoints);

}  // namespace nccl_pulse

#endif  // EXPORTER_CLI_FLEET_FLAGS_H_
