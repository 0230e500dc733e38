// Decides which user owns a process and a communicator if an endpoint's metrics page has processes
// of several users.
//
// Series with equal labels are added up, gauges show the newest one (families.h), and the ranks of
// a communicator are compared. So one user's hand-over could falsify another's numbers and
// verdicts. Therefore a process (pid, PID namespace, rank) belongs to one user, and so does a
// communicator, with all its ranks: else another user could invent a rank, which would take part in
// verdicts.
//
// A process belongs to the user whose claim to its pid the kernel confirms. Else, as for every
// communicator, the owner is the owner on the previous page, or the user who joined first.
// Ownership lasts while one of that user's processes, live or kept after its end, claims the
// process or communicator. A process that joined earlier has no priority over an owner, because it
// could copy ids from a page into its memory at any time.
//
// Not thread-safe.
#ifndef EXPORTER_NODE_PEERS_OWNERSHIP_H_
#define EXPORTER_NODE_PEERS_OWNERSHIP_H_

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "metrics/snapshot.h"

namespace nccl_pulse {

// A process' memory contents, and the user who handed it over.
struct Claim {
  const ProcessSnapshot* process;
  uid_t user;
  uint64_t order;  // order of joining, from 1
  bool is_itself;  // the kernel confirms the pid that the memory contains
};

class Ownership {
 public:
  // Decides the owners for all claims of a page. Forgets owners without a claim.
  void Settle(std::vector<Claim> claims);
  // The owner that the last Settle decided; it must have been claimed then.
  uid_t OwnerOf(const ProcessSnapshot& process) const { return processes_.at(Key(process)); }
  uid_t OwnerOf(const CommunicatorSnapshot& communicator) const {
    return communicators_.at(communicator.comm_id);
  }

 private:
  using ProcessKey = std::tuple<int32_t, uint32_t, std::string>;

  static ProcessKey Key(const ProcessSnapshot& process) {
    return {process.pid, process.pid_namespace, process.global_rank};
  }

  std::map<ProcessKey, uid_t> processes_;
  std::map<uint64_t, uid_t> communicators_;
};

}  // namespace nccl_pulse

#endif  // EXPORTER_NODE_PEERS_OWNERSHIP_H_
