// Sets holds all configurations' processes of one round. They differ only in their plugin, start
// together in random order, and get the same requests.
//
// A set that fails is left out until the next round restarts all: a later start would make it
// different. After three failures it stays out, or a hanging plugin would take all the time.
//
// Thread: the coordinator's only one.
#ifndef BENCH_COLLECTIVE_OVERHEAD_SETS_H_
#define BENCH_COLLECTIVE_OVERHEAD_SETS_H_

#include <memory>
#include <string>
#include <vector>

#include "bench/collective_overhead/group.h"
#include "bench/collective_overhead/options.h"
#include "bench/collective_overhead/samples.h"
#include "bench/collective_overhead/schedule.h"

namespace nccl_pulse::overhead {

class Sets {
 public:
  // Both must outlive this object. A set's index is that in options.configurations.
  Sets(const Options& options, Schedule* schedule);

  // Starts processes, contexts and communicators of all sets. Returns an error if no set without a
  // plugin started.
  Error Start(Launch launch);
  // Ends all processes and waits for them.
  void Quit();

  std::vector<int> Alive() const;
  bool IsAlive(int member) const { return groups_[Index(member)] != nullptr; }
  // True if a set without a plugin is alive.
  bool CanCompare() const;
  // Why a set is not alive.
  const std::string& Reason(int member) const { return reasons_[Index(member)]; }

  // Sends a request to all ranks of one set and receives their replies. An error ends the set.
  Error Call(int member, const Request& request, std::vector<Reply>* replies);

  const Machine& machine() const { return machine_; }

 private:
  static std::size_t Index(int member) { return static_cast<std::size_t>(member); }
  void Drop(int member, const Error& error);

  const Options& options_;
  Schedule* const schedule_;
  std::vector<std::unique_ptr<Group>> groups_;  // null: not running
  std::vector<std::string> reasons_;
  std::vector<int> failures_;
  Machine machine_;
};

}  // namespace nccl_pulse::overhead

#endif  // BENCH_COLLECTIVE_OVERHEAD_SETS_H_
