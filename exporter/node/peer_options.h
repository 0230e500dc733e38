// Says how many processes a server takes, whose, and what it keeps of those that ended.
#ifndef EXPORTER_NODE_PEER_OPTIONS_H_
#define EXPORTER_NODE_PEER_OPTIONS_H_

#include <sys/types.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <cstdint>

#include "exporter/exposition/page_share.h"
#include "exporter/node/handover.h"

namespace nccl_pulse {

inline constexpr int kMaxMembers = 256;
inline constexpr int kMaxSilent = 16;
inline constexpr std::chrono::milliseconds kHelloTimeout{5000};
// What a server that is no agent remembers of processes that ended, a few KiB each, so that it can
// say for whom the others wait.
inline constexpr std::size_t kMaxEnded = 64;
inline constexpr std::chrono::minutes kRememberEnded{10};

struct PeerOptions {
  bool agent = false;      // run by root, an agent takes every user's processes
  uid_t user = geteuid();  // who runs this server
  // Who is at the other end; for tests, of which none can be several users everywhere.
  bool (*credentials)(int connection, Credentials* credentials) = PeerCredentials;
  uint32_t pid_namespace = OwnPidNamespace();  // in which the pids count that it tells
  int max_members = kMaxMembers;
  uint64_t max_page_bytes = kMaxPageBytes;
  std::chrono::milliseconds keep{0};  // how long an ended process stays on the page
  int keep_processes = 0;             // and how many of them at most
};

}  // namespace nccl_pulse

#endif  // EXPORTER_NODE_PEER_OPTIONS_H_
