// FindRas finds the addresses at which NCCL's RAS, a service inside the job's processes, listens on
// this host. `pulse diagnose`, the agent and captures use it.
//
// RAS listens on the loopback of its own network namespace. With --enter-namespaces, a separate
// thread enters it and ends afterwards, so no other thread of this program is affected. Only the
// network changes: files, users and pids stay this program's own.
//
// Thread: any. FindRas starts a thread for each namespace that it opens. Errors: EPERM without
// CAP_SYS_ADMIN in this program's user namespace and in the other namespace's.
#ifndef EXPORTER_OUTSIDE_RAS_LISTENERS_H_
#define EXPORTER_OUTSIDE_RAS_LISTENERS_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "exporter/base/descriptor.h"
#include "exporter/fleet/address.h"
#include "exporter/fleet/ras_report.h"
#include "exporter/outside/host_processes.h"

namespace nccl_pulse::outside {

struct Network {
  // Opens the namespace that FindNcclProcesses saw; fails if the pid now has another namespace. On
  // failure returns null, and sets `error`.
  static std::shared_ptr<const Network> Open(const HostProcess& process, std::string* error);

  // Moves the calling thread into the namespace. On failure returns false, and sets `error`.
  bool Enter(std::string* error) const;

  int32_t pid;                      // a process in the namespace
  uint64_t inode;                   // identifies the namespace
  Descriptor fd;                    // keeps the namespace open even after the process ends
  std::set<std::string> addresses;  // IP addresses in the namespace
};

// Returns the IP addresses of the calling thread's namespace.
std::set<std::string> OwnAddresses();

struct RasListener {
  Address address;
  std::shared_ptr<const Network> network;  // null: this program's own

  // Asks for the report. Enters `network`, and leaves the calling thread there.
  RasReport Ask(std::chrono::milliseconds patience, std::size_t most_bytes) const;
};

struct RasListeners {
  // By address, and network namespace if any.
  std::map<std::string, RasListener> by_name;
  // Namespaces of the processes, by inode; null: can't be entered.
  std::map<uint64_t, std::shared_ptr<const Network>> networks;
  std::vector<std::string> notes;  // processes whose RAS isn't asked, and why
};

// Opens the network namespace of a process. Null: no other namespace is entered.
using OpenNetwork =
    std::function<std::shared_ptr<const Network>(const HostProcess&, std::string* error)>;

// Selects the RAS to ask.
struct RasChoice {
  std::optional<Address> address;  // used if there is no process to ask; none: no RAS is asked
  bool asks_processes = true;      // ask at the addresses in the processes' variables
  OpenNetwork open_network;
};

// Reads the values of --ras and --enter-namespaces. Returns false, with the reason in `error`, on
// failure.
bool ReadRasChoice(const std::string& ras, bool enters_networks, RasChoice* choice,
                   std::string* error);

// Returns the RAS listeners of processes without the plugin, each address once. Returns
// `choice.address` without `processes` or asks_processes.
RasListeners FindRas(const std::vector<HostProcess>& processes, const RasChoice& choice);

}  // namespace nccl_pulse::outside

#endif  // EXPORTER_OUTSIDE_RAS_LISTENERS_H_
