// Network enters another process' network namespace, for `--enter-namespaces`: NCCL's RAS listens
// on the loopback of its own namespace.
//
// A thread enters it for good and then ends, so no other thread of this program is affected. Only the
// network changes: files, users and pids stay this program's own.
//
// Thread: any. Errors: EPERM without CAP_SYS_ADMIN in this program's user namespace and in the other
// namespace's.
#ifndef EXPORTER_OUTSIDE_NETWORK_H_
#define EXPORTER_OUTSIDE_NETWORK_H_

#include <cstdint>
#include <memory>
#include <set>
#include <string>

#include "exporter/base/descriptor.h"
#include "exporter/outside/host_processes.h"

namespace nccl_pulse::outside {

struct Network {
  // Opens the namespace that FindNcclProcesses saw; fails if the pid now is another process'. On
  // failure returns null, and sets `error`.
  static std::shared_ptr<const Network> Open(const HostProcess& process, std::string* error);

  // Moves the calling thread. On failure returns false, and sets `error`.
  bool Enter(std::string* error) const;

  int32_t pid;  // a process in it
  uint64_t inode;
  Descriptor fd;  // keeps the namespace, whatever becomes of the process
  std::set<std::string> addresses;
};

// Returns false, with the reason in `error`, unless the calling thread has CAP_SYS_ADMIN.
bool MayEnterNetworks(std::string* error);

// Returns the IP addresses of the calling thread's namespace.
std::set<std::string> OwnAddresses();

}  // namespace nccl_pulse::outside

#endif  // EXPORTER_OUTSIDE_NETWORK_H_
