// CloserLook makes a job's processes on this host time more launches and watch all network steps
// while `pulse trace --every` records. Processes in containers are included if this PID namespace
// shows them. Like `pulse set`, it changes TIMED_LAUNCHES_PER_SECOND and NETWORK_WINDOW, with a
// time limit: each process then reverts automatically, even if this program dies.
//
// Thread: main thread. Begin blocks for at most the patience, End for at most twice as long.
// PrintCost prints the cost to the job. Errors: readable sentences that name unreachable processes.
#ifndef EXPORTER_CLI_CLOSER_LOOK_H_
#define EXPORTER_CLI_CLOSER_LOOK_H_

#include <sys/types.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include "exporter/fleet/address.h"
#include "exporter/timeline/recording.h"

namespace nccl_pulse {

class CloserLook {
 public:
  // `every`: one launch in `every` is timed; 1: all. `patience`: how long a process may take to
  // answer.
  CloserLook(int every, std::chrono::milliseconds patience) : every_(every), patience_(patience) {}

  static void PrintCost(std::FILE* said);
  // Call before the recording, which takes `window`. Changes the settings of those `processes` that
  // run on this host. Prints the result to `said`.
  void Begin(const std::vector<JobProcess>& processes, const std::vector<Address>& endpoints,
             std::chrono::milliseconds window, std::FILE* said);
  // Call after the recording, so that processes revert before their time limit.
  void End();
  // Returns which processes did not apply the settings fully, and why.
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  int every_;
  std::chrono::milliseconds patience_;
  // Pids, in this namespace, of the processes that applied TIMED_LAUNCHES_PER_SECOND [0] and
  // NETWORK_WINDOW [1].
  std::array<std::vector<pid_t>, 2> done_;
  std::vector<std::string> notes_;
};

}  // namespace nccl_pulse

#endif  // EXPORTER_CLI_CLOSER_LOOK_H_
