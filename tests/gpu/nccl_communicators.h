// The communicators of one rank of nccl_program, made in the same order on all ranks.
#ifndef TESTS_GPU_NCCL_COMMUNICATORS_H_
#define TESTS_GPU_NCCL_COMMUNICATORS_H_

#include <deque>
#include <string>

#include "tests/gpu/nccl_api.h"
#include "tests/gpu/nccl_worker.h"
#include "tests/gpu/rank.h"

namespace nccl_pulse {

class Communicators {
 public:
  explicit Communicators(const RankFlags& flags) : flags_(flags) {}

  // Of all ranks; "": without a name.
  Communicator& New(const std::string& name, bool blocking = true);
  // Halves where each has two ranks, and ranks in reverse order.
  Communicator& NewSplit(Communicator& parent, const std::string& name, bool share);
  static void Destroy(Communicator& comm);

  // Those that were ever made.
  std::deque<Communicator>& all() { return all_; }
  const std::deque<Communicator>& all() const { return all_; }

 private:
  static Communicator& Adopt(NcclComm handle, Communicator& comm);

  const RankFlags flags_;
  std::deque<Communicator> all_;
  int exchanged_ = 0;  // which communicator it is, since all ranks make them in the same order
};

}  // namespace nccl_pulse

#endif  // TESTS_GPU_NCCL_COMMUNICATORS_H_
