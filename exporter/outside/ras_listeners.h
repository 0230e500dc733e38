// FindRas finds where NCCL's RAS of this host's processes listens, for all that ask it: `pulse
// diagnose`, the agent, and captures.
//
// RAS listens on the loopback of its own network namespace. With --enter-namespaces, a thread enters
// it for good and then ends, so no other thread of this program is affected. Only the network changes:
// files, users and pids stay this program's own.
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

// Returns the IP addresses of the calling thread's namespace.
std::set<std::string> OwnAddresses();

struct RasListener {
  Address address;
  std::shared_ptr<const Network> network;  // null: this program's own

  // Leaves the calling thread in `network`.
  RasReport Ask(std::chrono::milliseconds patience, std::size_t most_bytes) const;
};

struct RasListeners {
  std::map<std::string, RasListener> by_name;
  std::map<uint64_t, std::shared_ptr<const Network>> networks;  // null: can't be entered
  std::vector<std::string> notes;  // processes whose RAS isn't asked, and why
};

// Opens the network namespace of a process. Null: other namespaces aren't entered.
using OpenNetwork =
    std::function<std::shared_ptr<const Network>(const HostProcess&, std::string* error)>;

// Where RAS is asked.
struct RasChoice {
  std::optional<Address> address;  // used without processes; none: RAS isn't asked then
  bool asks_processes = true;      // at the addresses that their variables give
  OpenNetwork open_network;
};

// Reads the values of --ras and --enter-namespaces. Returns false, with the reason in `error`, on
// failure.
bool ReadRasChoice(const std::string& ras, bool enters_networks, RasChoice* choice,
                   std::string* error);

RasListeners FindRas(const std::vector<HostProcess>& processes, const RasChoice& choice);

}  // namespace nccl_pulse::outside

#endif  // EXPORTER_OUTSIDE_RAS_LISTENERS_H_
