// Looks up the addresses of many hosts, on a bounded number of threads and within a time limit:
// getaddrinfo blocks for as long as a name server is silent.
//
// Thread: any. A thread that still waits for a name server when the time is over stays behind and
// ends by itself.
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
  std::string error;                        // where there are none
};

// "localhost" is 127.0.0.1 where nothing resolves it.
std::map<std::string, ResolvedHost> ResolveHosts(const std::set<std::string>& hosts,
                                                 std::chrono::milliseconds patience);

// Gives the address of the socket at that path.
ResolvedHost ResolvePath(const std::string& path);

}  // namespace nccl_pulse

#endif  // EXPORTER_FLEET_RESOLVER_H_
