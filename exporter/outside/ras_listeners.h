// FindRas finds where NCCL's RAS of this host's processes listens, for all that ask it: `pulse
// diagnose`, the agent, and captures.
//
// Thread: any. FindRas starts a thread for each namespace that it opens.
#ifndef EXPORTER_OUTSIDE_RAS_LISTENERS_H_
#define EXPORTER_OUTSIDE_RAS_LISTENERS_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "exporter/fleet/address.h"
#include "exporter/fleet/ras_report.h"
#include "exporter/outside/host_processes.h"
#include "exporter/outside/network.h"

namespace nccl_pulse::outside {

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
