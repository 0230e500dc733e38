#include "exporter/outside/network.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <linux/capability.h>
#include <sched.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <future>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "exporter/base/error_text.h"

namespace nccl_pulse::outside {

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

bool MayEnterNetworks(std::string* error) {
  __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  std::array<__user_cap_data_struct, _LINUX_CAPABILITY_U32S_3> capabilities{};
  *error = "--enter-namespaces: run as root with CAP_SYS_ADMIN";
  return syscall(SYS_capget, &header, capabilities.data()) == 0 &&
         (capabilities[0].effective & (1U << CAP_SYS_ADMIN)) != 0;
}

std::set<std::string> OwnAddresses() {
  std::set<std::string> addresses;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return addresses;
  for (const ifaddrs* each = list; each != nullptr; each = each->ifa_next) {
    char text[INET6_ADDRSTRLEN] = {};
    if (each->ifa_addr == nullptr) continue;
    const int family = each->ifa_addr->sa_family;
    const void* from = nullptr;
    if (family == AF_INET) from = &reinterpret_cast<const sockaddr_in*>(each->ifa_addr)->sin_addr;
    if (family == AF_INET6) {
      from = &reinterpret_cast<const sockaddr_in6*>(each->ifa_addr)->sin6_addr;
    }
    if (from != nullptr && inet_ntop(family, from, text, sizeof(text)) != nullptr) {
      addresses.insert(text);
    }
  }
  freeifaddrs(list);
  return addresses;
}

}  // namespace nccl_pulse::outside
