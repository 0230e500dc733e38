// Which user a process and a communicator belong to, where several users share a page.
//
// Series with equal labels are added up, gauges show the newest one (families.h), and the ranks of
// a communicator are compared with each other. So what one user hands over could falsify another
// one's numbers and verdicts. Therefore a process (pid, PID namespace, rank) belongs to one user,
// and so does a communicator (its id alone: a made-up rank of it would take part in verdicts).
//
// The owner is the user it belonged to when the last page was made, else the one who joined first.
// It stays so as long as one of that user's processes, living or kept, is it or has it. Having
// joined earlier does not help against an owner: a process can write into its memory at any time
// what it has read on a page. For a process, but not for a communicator, one thing counts more than
// being first: that the kernel confirms its pid.
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
