// CloserLook makes a job's processes on this host time more launches and watch all network steps,
// for a while. It includes containers visible in this PID namespace. It is `pulse set` of
// TIMED_LAUNCHES_PER_SECOND and NETWORK_WINDOW with a time limit: each process then reverts
// automatically, even if this program dies.
//
// Thread: main thread; Begin blocks up to the patience, End up to twice that. Cost to the job: see
// PrintCost. Errors: readable sentences that name unreachable processes.
#ifndef EXPORTER_CLI_CLOSER_LOOK_H_
#define EXPORTER_CLI_CLOSER_LOOK_H_

#include <sys/types.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include "exporter/fleet/address.h"
#include "exporter/timeline/job_process.h"

namespace nccl_pulse {

class CloserLook {
 public:
  // `every`: one launch in `every` is timed; 1: all.
  CloserLook(int every, std::chrono::milliseconds patience) : every_(every), patience_(patience) {}

  static void PrintCost(std::FILE* said);
  // Call before the window. Changes settings only of `processes` on this host.
  void Begin(const std::vector<JobProcess>& processes, const std::vector<Address>& endpoints,
             std::chrono::milliseconds window, std::FILE* said);
  // Call after the window, so that processes revert before their time limit.
  void End();
  // Returns which processes did not apply the settings fully, and why.
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  int every_;
  std::chrono::milliseconds patience_;
  // Processes with the changed setting, for each of the two; pids of this namespace.
  std::array<std::vector<pid_t>, 2> done_;
  std::vector<std::string> notes_;
};

}  // namespace nccl_pulse

#endif  // EXPORTER_CLI_CLOSER_LOOK_H_
