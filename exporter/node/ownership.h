// Whose a process and a communicator are, where several users share a page.
//
// Equal labels are added up, gauges are the newest one's (families.h), and the ranks of one
// communicator are compared with each other. So a process (pid, PID namespace, rank) is one user's,
// and so is a communicator, by its id alone: a made-up rank of it would take part in verdicts.
//
// The first owns it: whose it was when the last page was made, else who joined first; and keeps it
// as long as one of that user's processes, living or kept, is or has it. To have joined earlier
// does not help against an owner: a process writes into its memory what it has read on a page,
// whenever it likes. Of a process, not of a communicator, one thing is worth more than to be first:
// that the kernel confirms its pid.
//
// Thread: one.
#ifndef EXPORTER_NODE_OWNERSHIP_H_
#define EXPORTER_NODE_OWNERSHIP_H_

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "metrics/snapshot.h"

namespace nccl_pulse {

// What stands in a process' memory, and whose that is.
struct Claim {
  const ProcessSnapshot* process;
  uid_t user;
  uint64_t order;  // of joining
  bool is_itself;  // the kernel says that it is the process that it says it is
};

class Ownership {
 public:
  // All that a page could show. Forgets what is claimed no longer.
  void Settle(std::vector<Claim> claims);
  // Of what was claimed then.
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

#endif  // EXPORTER_NODE_OWNERSHIP_H_
