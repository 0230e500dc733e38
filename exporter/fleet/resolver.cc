#include "exporter/fleet/resolver.h"

#include <netdb.h>
#include <sys/un.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

namespace nccl_pulse {
namespace {

constexpr std::size_t kMostThreads = 16;

ResolvedHost Resolve(const std::string& host, int flags) {
  ResolvedHost resolved;
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* found = nullptr;
  const int problem = getaddrinfo(host.c_str(), nullptr, &hints, &found);
  if (problem != 0) {
    resolved.error = gai_strerror(problem);
    return resolved;
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, freeaddrinfo);
  for (const addrinfo* each = found; each != nullptr; each = each->ai_next) {
    sockaddr_storage address = {};
    if (each->ai_addrlen > sizeof(address)) continue;
    std::memcpy(&address, each->ai_addr, each->ai_addrlen);
    resolved.addresses.push_back(address);
  }
  return resolved;
}

// Shared with threads that may outlive the call.
struct Work {
  std::mutex mutex;
  std::condition_variable done;
  std::vector<std::string> names;
  std::size_t next = 0, ended = 0;
  std::map<std::string, ResolvedHost> resolved;
};

void ResolveSome(const std::shared_ptr<Work>& work) {
  std::unique_lock lock(work->mutex);
  while (work->next < work->names.size()) {
    const std::string name = work->names[work->next++];
    lock.unlock();
    ResolvedHost resolved = Resolve(name, 0);
    lock.lock();
    work->resolved[name] = std::move(resolved);
    ++work->ended;
    work->done.notify_all();
  }
}

}  // namespace

std::map<std::string, ResolvedHost> ResolveHosts(const std::set<std::string>& hosts,
                                                 std::chrono::milliseconds patience) {
  auto work = std::make_shared<Work>();
  for (const std::string& host : hosts) {
    // An address needs no name server.
    ResolvedHost numeric = Resolve(host, AI_NUMERICHOST);
    if (numeric.error.empty()) {
      work->resolved[host] = std::move(numeric);
    } else {
      work->names.push_back(host);
    }
  }
  const std::size_t threads = std::min(kMostThreads, work->names.size());
  for (std::size_t i = 0; i < threads; ++i) std::thread(ResolveSome, work).detach();
  std::unique_lock lock(work->mutex);
  work->done.wait_for(lock, patience, [&work] { return work->ended == work->names.size(); });
  work->next = work->names.size();
  std::map<std::string, ResolvedHost> resolved = work->resolved;
  for (const std::string& name : work->names) {
    const auto [at, is_late] = resolved.try_emplace(name);
    if (is_late) at->second.error = "no name server answered in time";
    // A container may have no /etc/hosts. Endpoints also take this name as this address.
    if (name == "localhost" && at->second.addresses.empty()) {
      at->second = Resolve("127.0.0.1", AI_NUMERICHOST);
    }
  }
  return resolved;
}

ResolvedHost ResolvePath(const std::string& path) {
  sockaddr_storage storage = {};
  auto& address = reinterpret_cast<sockaddr_un&>(storage);
  if (path.size() >= sizeof(address.sun_path)) return {{}, "the path is too long for a socket"};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  return {{storage}, ""};
}

}  // namespace nccl_pulse
