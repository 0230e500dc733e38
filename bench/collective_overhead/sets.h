// All configurations' processes of one round, alike in all but their plugin: started together, in
// a random order, and asked the same things.
//
// A set that fails is left out until the next round starts all afresh: one that came up later
// would not be like the others. After three failures it stays out, or a plugin that hangs would
// take all the time.
//
// Thread: the coordinator's only one.
#ifndef BENCH_COLLECTIVE_OVERHEAD_SETS_H_
#define BENCH_COLLECTIVE_OVERHEAD_SETS_H_

#include <memory>
#include <string>
#include <vector>

#include "bench/collective_overhead/group.h"
#include "bench/collective_overhead/options.h"
#include "bench/collective_overhead/report.h"
#include "bench/collective_overhead/schedule.h"

namespace nccl_pulse::overhead {

class Sets {
 public:
  // Both must outlive it. Sets are known by their place in options.configurations.
  Sets(const Options& options, Schedule* schedule);

  // Processes, contexts, communicators of all. The error when none without a plugin came up.
  Error Start(Launch launch);
  // Lets all processes end and waits.
  void Quit();

  std::vector<int> Alive() const;
  bool IsAlive(int member) const { return groups_[Index(member)] != nullptr; }
  // Of those, without a plugin.
  bool CanCompare() const;
  // Why a set is not alive.
  const std::string& Reason(int member) const { return reasons_[Index(member)]; }

  // One request to all ranks of one set, and their replies. After an error the set is no more.
  Error Call(int member, const Request& request, std::vector<Reply>* replies);

  // Of the GPUs, and what the waiting processes took so far.
  Machine DescribeMachine() const;

 private:
  static std::size_t Index(int member) { return static_cast<std::size_t>(member); }
  void Drop(int member, const Error& error);
  void CollectIdle();

  const Options& options_;
  Schedule* const schedule_;
  std::vector<std::unique_ptr<Group>> groups_;  // null: not running
  std::vector<std::string> reasons_;
  std::vector<int> failures_;
  std::vector<IdleCost> idle_;  // of the rounds before
  Machine machine_;
};

}  // namespace nccl_pulse::overhead

#endif  // BENCH_COLLECTIVE_OVERHEAD_SETS_H_
