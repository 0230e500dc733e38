#include "exporter/outside/ras_listeners.h"

#include <fcntl.h>
#include <ifaddrs.h>
#include <linux/capability.h>
#include <netdb.h>
#include <sched.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <future>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "exporter/base/error_text.h"

namespace nccl_pulse::outside {
namespace {

constexpr std::size_t kMostAddresses = 16;  // and as many network namespaces

bool MayEnterNetworks(std::string* error) {
  __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  std::array<__user_cap_data_struct, _LINUX_CAPABILITY_U32S_3> capabilities{};
  *error = "--enter-namespaces: run as root with CAP_SYS_ADMIN";
  return syscall(SYS_capget, &header, capabilities.data()) == 0 &&
         (capabilities[0].effective & (1U << CAP_SYS_ADMIN)) != 0;
}

}  // namespace

std::shared_ptr<const Network> Network::Open(const HostProcess& process, std::string* error) {
  const std::string path = absl::StrCat("/proc/", process.pid, "/ns/net");
  const std::shared_ptr<Network> network(new Network{
      process.pid, process.network, Descriptor(open(path.c_str(), O_RDONLY | O_CLOEXEC)), {}});
  struct stat status {};
  if (network->fd.get() < 0 || fstat(network->fd.get(), &status) != 0) {
    *error = ErrorText(errno);
    return nullptr;
  }
  if (status.st_ino != process.network) {
    *error = "the process has ended";
    return nullptr;
  }
  try {
    const bool has_entered = std::async(std::launch::async, [&] {
                               if (!network->Enter(error)) return false;
                               network->addresses = OwnAddresses();
                               return true;
                             }).get();
    if (has_entered) return network;
  } catch (const std::system_error&) {
    *error = "no thread";
  }
  return nullptr;
}

bool Network::Enter(std::string* error) const {
  if (setns(fd.get(), CLONE_NEWNET) == 0) return true;
  *error = ErrorText(errno);
  return false;
}

std::set<std::string> OwnAddresses() {
  std::set<std::string> addresses;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return addresses;
  for (const ifaddrs* each = list; each != nullptr; each = each->ifa_next) {
    char text[NI_MAXHOST];
    if (each->ifa_addr == nullptr) continue;
    const bool is_v6 = each->ifa_addr->sa_family == AF_INET6;
    if (getnameinfo(each->ifa_addr, is_v6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in), text,
                    sizeof(text), nullptr, 0, NI_NUMERICHOST) == 0) {
      addresses.insert(text);
    }
  }
  freeifaddrs(list);
  return addresses;
}

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

// NCCL_RAS_ADDR may be another user's text, so root follows it only to addresses of this host.
RasListeners FindRas(const std::vector<HostProcess>& processes, const RasChoice& choice) {
  RasListeners found;
  if (!choice.asks_processes || processes.empty()) {
    if (choice.address) found.by_name = {{choice.address->name(), {*choice.address, nullptr}}};
    return found;
  }
  const std::set<std::string> own = OwnAddresses();
  std::vector<const HostProcess*> malformed;
  std::size_t old = 0;
  std::size_t foreign = 0;
  std::size_t elsewhere = 0;
  std::size_t beyond = 0;
  for (const HostProcess& process : processes) {
    std::optional<Address> address;
    std::string error;
    if (process.has_plugin || process.is_ras_off) continue;
    if (process.IsRasOld()) {
      ++old;
      continue;
    }
    const std::string& text = process.ras_address;
    const bool is_known = RasFromFlag(text.empty() ? "localhost" : text, &address, &error);
    if (!is_known || !address) {
      malformed.push_back(&process);
      continue;
    }
    const bool is_loopback =  // 0.0.0.0 and :: connect to it
        IsLoopback(address->host) || address->host == "0.0.0.0" || address->host == "::";
    if (process.user != geteuid() && !is_loopback && own.count(address->host) == 0) {
      ++foreign;
      continue;
    }
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
  const auto add_unasked = [&found](std::size_t unasked, const auto&... why) {
    if (unasked == 0) return;
    const char* const processes = unasked == 1 ? " process" : " processes";
    found.notes.push_back(
        absl::StrCat("RAS of ", unasked, processes, " isn't asked: ", why..., "."));
  };
  if (!malformed.empty()) {
    add_unasked(malformed.size(), "NCCL_RAS_ADDR of pid ", malformed[0]->pid,
                " is not HOST:PORT: ", malformed[0]->ras_address);
  }
  add_unasked(old, "counts need NCCL 2.28.7");
  add_unasked(foreign, "another user has set NCCL_RAS_ADDR, to no address of this host. Next: ",
              "pulse diagnose as that user");
  add_unasked(beyond, "at most ", kMostAddresses, " addresses and network namespaces are. Next: ",
              "kubectl exec POD -- pulse diagnose");
  return found;
}

}  // namespace nccl_pulse::outside
