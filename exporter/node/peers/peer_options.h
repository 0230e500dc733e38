// Options of a server's peers: their number, their users, and how long ended processes are kept.
#ifndef EXPORTER_NODE_PEERS_PEER_OPTIONS_H_
#define EXPORTER_NODE_PEERS_PEER_OPTIONS_H_

#include <sys/types.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <cstdint>

#include "exporter/exposition/page_share.h"
#include "exporter/node/handover.h"

namespace nccl_pulse {

inline constexpr int kMaxMembers = 256;
inline constexpr int kMaxSilent = 16;  // connections that have not said hello
inline constexpr std::chrono::milliseconds kHelloTimeout{5000};  // then they are closed
// Limits for ended processes that a job's own server remembers (an agent has options instead), a
// few KiB each. The diagnosis can then name an ended rank that others wait for.
inline constexpr std::size_t kMaxEnded = 64;
inline constexpr std::chrono::minutes kRememberEnded{10};

struct PeerOptions {
  bool agent = false;      // an agent; root's agent accepts every user's processes
  uid_t user = geteuid();  // effective user of this server
  // Reads the peer's credentials. Replaced in tests, which cannot always run as several users.
  bool (*credentials)(int connection, Credentials* credentials) = PeerCredentials;
  uint32_t pid_namespace = OwnPidNamespace();  // namespace of the pids that `credentials` returns
  int max_members = kMaxMembers;
  uint64_t max_page_bytes = kMaxPageBytes;
  std::chrono::milliseconds keep{0};  // how long an ended process stays on the page
  int keep_processes = 0;             // most ended processes on the page
};

}  // namespace nccl_pulse

#endif  // EXPORTER_NODE_PEERS_PEER_OPTIONS_H_
