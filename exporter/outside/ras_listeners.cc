#include "exporter/outside/ras_listeners.h"

#include <unistd.h>

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"

namespace nccl_pulse::outside {
namespace {

constexpr std::size_t kMostAddresses = 16;  // and as many network namespaces

}  // namespace

RasReport RasListener::Ask(std::chrono::milliseconds patience, std::size_t most_bytes) const {
  RasReport report;
  if (network && !network->Enter(&report.error)) return report;
  return AskRas(address, patience, most_bytes);
}

bool ReadRasChoice(const std::string& ras, bool enters_networks, RasChoice* choice,
                   std::string* error) {
  choice->asks_processes = ras.empty();
  if (enters_networks) choice->open_network = Network::Open;
  return RasFromFlag(ras, &choice->address, error) && (!enters_networks || MayEnterNetworks(error));
}

// The variable is another user's text: root connects to no address of another host for it.
RasListeners FindRas(const std::vector<HostProcess>& processes, const RasChoice& choice) {
  RasListeners found;
  if (!choice.asks_processes || processes.empty()) {
    if (choice.address) found.by_name = {{choice.address->name(), {*choice.address, nullptr}}};
    return found;
  }
  std::size_t elsewhere = 0;
  std::size_t beyond = 0;
  for (const HostProcess& process : processes) {
    std::optional<Address> address;
    std::string error;
    if (process.has_plugin || process.is_ras_off) continue;
    const std::string& text = process.ras_address;
    const bool is_known = RasFromFlag(text.empty() ? "localhost" : text, &address, &error);
    if (!is_known || !address) continue;
    const bool is_loopback = IsLoopback(address->host);
    if (process.user != geteuid() && !is_loopback) continue;
    std::string name = address->name();
    std::shared_ptr<const Network> network;
    if (process.network != 0 && choice.open_network) {
      if (found.networks.size() >= kMostAddresses && found.networks.count(process.network) == 0) {
        ++beyond;
        continue;
      }
      const auto [known, is_new] = found.networks.try_emplace(process.network);
      if (is_new) known->second = choice.open_network(process, &error);
      if (is_new && !known->second) {
        found.notes.push_back(absl::StrCat("The network namespace of pid ", process.pid,
                                           " can't be entered: ", error, "."));
      }
      network = known->second;
      if (!network) continue;
      absl::StrAppend(&name, " in the network namespace of pid ", network->pid);
    } else if (process.network != 0 && is_loopback) {
      ++elsewhere;
      continue;
    }
    if (found.by_name.size() < kMostAddresses || found.by_name.count(name) != 0) {
      found.by_name.try_emplace(std::move(name), RasListener{*address, std::move(network)});
    } else {
      ++beyond;
    }
  }
  if (elsewhere != 0) {
    found.notes.push_back(
        absl::StrCat(elsewhere, elsewhere == 1 ? " process uses" : " processes use",
                     " RAS in another network namespace. Next: kubectl exec POD -- pulse diagnose, "
                     "or as root --enter-namespaces."));
  }
  if (beyond != 0) {
    found.notes.push_back(
        absl::StrCat("RAS of ", beyond, beyond == 1 ? " process" : " processes",
                     " isn't asked: at most ", kMostAddresses,
                     " addresses and network namespaces are. Next: kubectl exec POD "
                     "-- pulse diagnose."));
  }
  return found;
}

}  // namespace nccl_pulse::outside
