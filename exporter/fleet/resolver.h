// ResolveHosts looks up the addresses of many hosts, on a limited number of threads and within a
// time limit, because getaddrinfo blocks while a name server is silent.
//
// Thread: any. At the time limit, threads that still wait for a name server are left behind and end
// later.
#ifndef EXPORTER_FLEET_RESOLVER_H_
#define EXPORTER_FLEET_RESOLVER_H_

#include <netinet/in.h>
#include <sys/socket.h>

#include <chrono>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace nccl_pulse {

struct ResolvedHost {
  std::vector<sockaddr_storage> addresses;  // without ports, in the order to try them
  std::string error;                        // reason if there are no addresses
};

// Returns the result for each host. "localhost" is 127.0.0.1 if it cannot be resolved.
std::map<std::string, ResolvedHost> ResolveHosts(const std::set<std::string>& hosts,
                                                 std::chrono::milliseconds patience);

// Returns the address of the Unix socket at `path`.
ResolvedHost ResolvePath(const std::string& path);

}  // namespace nccl_pulse

#endif  // EXPORTER_FLEET_RESOLVER_H_
